"""What AOTAutograd takes apart: by claim, in one trace, with the same values."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.utils.checkpoint
from claimed import graph_of, only, targets
from functorch.compile import aot_function

import aot_core
from aot_partition import nvprims_fw_bw_partition_fn, prims_executor
from aot_partition.nvprims import as_nvprims, claim, nvprim_of, nvprims_decompositions, register_nvprims

aten = torch.ops.aten
F = torch.nn.functional
x = torch.linspace(-2, 2, 24).reshape(4, 6)

COMPOSITE = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "gelu": F.gelu,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "softplus": F.softplus,
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "group_norm": lambda x: F.group_norm(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 5, 2, 3])),
    "mse_loss": lambda x: F.mse_loss(x, x * 2),
    "std": lambda x: x.std(0),
    "norm": lambda x: x.norm(dim=1),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "tril": lambda x: x.tril(),
    "glu": F.glu,
    "stack": lambda x: torch.stack([x, x], 1),
    "repeat": lambda x: x.repeat(2, 3),
    "a slice and its gradient": lambda x: x[1:3, -2:] * 2,
    "a row and its gradient": lambda x: x[-1] * 2,
    "rows and columns": lambda x: x[1:, 2] * 2,
    "a gathered row": lambda x: x.detach()[torch.tensor([3, -1, 0])] * x[:3],
    "gathered columns": lambda x: x.detach()[:, torch.tensor([[3, -1], [0, 2]])] * 2 + x[0, 0],
    "a range of floats": lambda x: x * torch.arange(6, dtype=x.dtype),
    "steps down": lambda x: x * torch.arange(5, -1, -1, dtype=x.dtype),
}


@pytest.mark.parametrize("name", COMPOSITE)
def test_all_pieces_are_claimed_and_values_stay(name):
    function = COMPOSITE[name]
    leaf = x.double().requires_grad_()
    graphs = []

    def partition(joint, joint_inputs, **options):
        graphs.append(joint)
        return nvprims_fw_bw_partition_fn(joint, joint_inputs, executor="aten", **options)

    compiled = aot_function(
        function,
        fw_compiler=functools.partial(prims_executor, executor="aten"),
        partition_fn=partition,
        decompositions=nvprims_decompositions(),
    )

    def step(function):
        out = function(leaf)
        return out.detach(), *torch.autograd.grad(out.square().sum(), leaf)

    torch.testing.assert_close(step(compiled), step(function))
    assert claim(graphs[0]).refused == {}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("weighted", "needed"),
    [
        (True, (True, True, True)),
        (True, (False, True, True)),
        (True, (True, False, False)),
        (False, (True, False, False)),
    ],
)
def test_gradients_of_a_batch_norm(train, dtype, weighted, needed):
    """Against the kernel's in float64, from the same statistics."""
    torch.manual_seed(0)
    image, gradient = (torch.randn(4, 3, 5, 5, dtype=dtype) for _ in range(2))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    weight = torch.rand(3, dtype=wide) + 0.5 if weighted else None
    mean, var = image.to(wide).mean((0, 2, 3)), image.to(wide).var((0, 2, 3), correction=0)
    invstd = (var + 1e-5).rsqrt()
    arguments = [gradient, image, weight, mean, var, mean, invstd]

    def gradients(*arguments):
        return [
            made
            for made in aten.native_batch_norm_backward(*arguments, train, 1e-5, list(needed))
            if made is not None
        ]

    exact = gradients(*(x if x is None else x.double() for x in arguments))
    gm = graph_of(gradients, *arguments)
    assert targets(gm).count("aten.view.default") <= 4
    assert claim(gm).refused == {}
    for got, expected, wanted in zip(gm(*arguments), gradients(*arguments), exact, strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, wanted.to(got.dtype))


@pytest.mark.parametrize("index", [-1, 0, 3])
@pytest.mark.parametrize("dim", [-2, 0])
def test_a_selected_slice_of_any_place(index, dim):
    def gradient(x):
        return torch.autograd.grad(x.select(dim, index).square().sum(), x)[0]

    leaf = x.clone().requires_grad_()
    gm = graph_of(gradient, leaf)
    assert "aten.constant_pad_nd.default" in targets(gm)
    torch.testing.assert_close(gm(leaf), gradient(leaf))


@pytest.mark.parametrize("bounds", [(0, 4), (1, 3), (-2, 10**9), (-100, 2), (3, 4)])
def test_a_slice_of_any_place(bounds):
    def gradient(x):
        return torch.autograd.grad(x[slice(*bounds)].square().sum(), x)[0]

    leaf = x.clone().requires_grad_()
    gm = graph_of(gradient, leaf)
    assert "aten.slice_backward.default" not in targets(gm)
    torch.testing.assert_close(gm(leaf), gradient(leaf))


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: x[::2] * 2, aten.slice_backward.default),
        (lambda x: x[torch.tensor([0, 1]), torch.tensor([2, 3])], aten.index.Tensor),
        (lambda x: F.pad(x[None, None], (1, 1, 1, 1), mode="reflect"), aten.reflection_pad2d.default),
        (lambda x: F.interpolate(x[None, None], scale_factor=2), aten.upsample_nearest2d.default),
    ],
)
def test_what_would_fall_into_unclaimed_pieces_stays_whole(function, kept):
    def step(x):
        out = function(x)
        return torch.autograd.grad(out.sum(), x)

    assert str(kept).removesuffix(".default") in " ".join(targets(graph_of(step, x.clone().requires_grad_())))


def test_what_could_not_be_claimed_stays_whole():
    gm = graph_of(lambda x: torch.std(x, 0), x.to(torch.complex64))
    assert targets(gm) == ["aten.std.correction"]
    assert "aten.std.correction" not in targets(graph_of(lambda x: torch.std(x, 0), x))
    table = nvprims_decompositions(device_types=("cuda",))
    assert targets(graph_of(lambda x: x.softmax(0), x, decompositions=table)) == ["aten._softmax.default"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_a_row_of_numbers_is_that_of_the_kernel(dtype):
    """Integers between two floats: the kernel rounds the ends first."""
    bounds = [(4.3, -3, 50), (-2, -1, 50), (0.5, 40.9, 7), (-7, 50.2, 50)]
    gm = graph_of(lambda x: [torch.linspace(*each, dtype=dtype) for each in bounds], x)
    for (start, end, steps), got in zip(bounds, gm(x), strict=True):
        torch.testing.assert_close(got, torch.linspace(start, end, steps, dtype=dtype))


def test_random_operators_stay_whole():
    table = nvprims_decompositions()
    for op in (aten.native_dropout.default, aten.bernoulli.p, aten.exponential.default, aten.normal_.default):
        assert op not in table


def test_skipped_operators_are_not_in_the_table():
    assert aten._softmax.default in nvprims_decompositions()
    assert aten._softmax.default not in nvprims_decompositions(skip_ops=["aten._softmax"])


def test_entries_are_not_taken_apart_but_for_calls_that_they_refuse():
    both = {op for op in nvprims_decompositions() if nvprim_of(op) is not None}
    assert both == {aten.arange.start_step}


def test_descriptions_tags_and_source_lines_survive():
    graphs = []

    def partition(joint, joint_inputs, **options):
        graphs.append(joint)
        return nvprims_fw_bw_partition_fn(joint, joint_inputs, executor="aten", **options)

    backend = aot_core.aot_autograd(
        name="tracer",
        fw_compiler=lambda gm, _: gm,
        partition_fn=partition,
        decompositions=nvprims_decompositions,
    )

    def function(x):
        return torch.utils.checkpoint.checkpoint(lambda x: x.sin().softmax(-1), x, use_reentrant=False)

    torch.compile(function, backend=backend)(x.clone().requires_grad_())
    (joint,) = graphs
    assert all(type(each).__name__.endswith("AOTOutput") for each in joint.graph.output_node().meta["desc"])
    node = only(joint, aten.amax.default)
    assert "softmax(-1)" in node.stack_trace and "test_decompositions.py" in node.stack_trace
    assert node.meta["recompute"].name.endswith("RECOMPUTE")


def test_a_view_of_the_graph_in_nvprims():
    gm = graph_of(lambda x, y: torch.var_mean((x @ y).softmax(0).t(), 0), x, x.t())
    view = as_nvprims(gm)
    assert "aten.mm.default" in targets(view)
    assert {"nvprims.amax.default", "nvprims.t.default", "nvprims.var_mean.correction"} <= set(targets(view))
    assert not any(target.startswith("nvprims") for target in targets(gm)), "a copy"
    torch.testing.assert_close(view(x, x.t()), gm(x, x.t()))
    operators = register_nvprims()
    assert operators[aten.mm.default] is torch.ops.nvprims.matmul.mm
    assert operators[aten.add.Tensor] is torch.ops.nvprims.add.Tensor
    assert torch.equal(torch.ops.nvprims.add(x, 2), x + 2)


HISTORIC = (
    "abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cos cosh ceil clone "
    "convert_element_type div eq erf erfc exp expm1 fmod full ge gt imag isfinite le lgamma log log10 log1p log2 lt "
    "mul native_batch_norm ne neg pow rand_like real reciprocal remainder round rsqrt sign sin sinh sqrt sub sum tan "
    "tanh trunc var var_mean view where amax amin add broadcast_in_dim squeeze transpose"
)
ELSEWHERE = {
    "imag": "complex numbers are refused",
    "real": "complex numbers are refused",
    "native_batch_norm": "taken apart",
    "broadcast_in_dim": "expand and unsqueeze",
}


def test_the_historic_set_is_there():
    register_nvprims()
    missing = {name for name in HISTORIC.split() if not hasattr(torch.ops.nvprims, name)}
    assert missing == set(ELSEWHERE)
