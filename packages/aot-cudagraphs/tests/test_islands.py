"""Where graphs are cut, traced with tensors that claim to be on a CUDA device, and what the pieces compute."""

from __future__ import annotations

import models
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aot_cudagraphs import apply_cuda_graphs, partition
from aot_cudagraphs.sharing import disposable_inputs, returned_inputs

CUDA = torch.device("cuda", 0)


def traced(function, *shapes, device=CUDA):
    """Trace a function of float tensors of these shapes, which may hold a tensor for a shape."""
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
        inputs = [
            mode.from_tensor(shape) if isinstance(shape, torch.Tensor) else torch.empty(shape, device=device)
            for shape in shapes
        ]
    return make_fx(function, tracing_mode="fake")(*inputs)


def targets(part):
    return [str(node.target) for node in part.gm.graph.nodes if node.op in ("call_function", "call_module")]


def deep(x, w, between):
    """Sixty operations with something between."""
    for i in range(30):
        if i == 15:
            x = between(x)
        x = torch.relu(x @ w)
    return x


aten = torch.ops.aten


# torch's own Python functions for these start CUDA; the operators don't.
def masked_write(x):
    return aten.index_put.default(x.clone(), [x > 0], x.new_ones(()))


UNSAFE = {
    "unsafe-op": lambda x: x + aten.nonzero.default(x).sum(),
    "mask-write": masked_write,
    "eigenvalues": lambda x: x + torch.linalg.eigvals(x).real,
    "to-host-and-back": lambda x: x + x.sum().cpu().to(x.device),
    "host-tensor": lambda x: x + torch.arange(8.0).to(x.device),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_nearly_all_of_the_rest_is_captured(name):
    part = partition(traced(lambda x, w: [deep(x, w, UNSAFE[name])], (8, 8), (8, 8)))
    assert part.refused
    assert part.device == CUDA
    print(
        f"{name}: {part.captured} of {part.operations}, refused {len(part.refused)}, share {part.share:.3f}"
    )
    assert part.share >= 0.95


def test_a_graph_without_refusals_is_one_island():
    part = partition(traced(lambda x, w: [deep(x, w, lambda x: x)], (8, 8), (8, 8)))
    assert part.whole and part.share == 1.0


def test_a_number_on_the_host_is_moved():
    part = partition(traced(lambda x, w, s: [deep(x, w, lambda x: x * s)], (8, 8), (8, 8), torch.tensor(2.0)))
    assert part.share >= 0.95 and part.refused == ()
    assert len(part.moved) == 1 and len(part.islands) == 1
    assert targets(part)[0] == "aten._to_copy.default"


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x, s: x / s, torch.float32),
        (lambda x, s: x**s, torch.float32),
        (lambda x, s: x * s, torch.bfloat16),
    ],
    ids=["division", "power", "low-precision"],
)
def test_a_number_on_the_host_stays_where_moving_it_changes_bits(function, dtype):
    with FakeTensorMode():
        x = torch.empty(8, device=CUDA, dtype=dtype)
        s = torch.empty((), dtype=torch.float64)
    part = partition(make_fx(lambda x, s: [function(x + 1, s) + 1], tracing_mode="fake")(x, s))
    assert [refused.refusal.code for refused in part.refused] == ["host-scalar"]
    assert len(part.islands) == 2


def test_refusals_name_operation_and_reason():
    part = partition(traced(lambda x: [aten.nonzero.default(x * 2) + 1], (4,)))
    (refused, *_) = part.refused
    assert refused.refusal.op == "aten.nonzero.default"
    assert refused.refusal.code == "data-dependent-shape"


def test_what_reads_a_size_that_depends_on_data_is_not_captured():
    part = partition(traced(lambda x: [aten.nonzero.default(x * 2).float().exp(), x.sin()], (4,)))
    assert "data-dependent-size" in {refused.refusal.code for refused in part.refused}
    assert part.captured >= 2


def test_operations_on_another_device_stay_outside():
    with FakeTensorMode():
        x, y = torch.empty(8, device="cuda:0"), torch.empty(8, device="cuda:1")

    def f(x, y):
        for _ in range(6):
            x = x.sin()
        return [x, y.cos(), (x * 2)]

    part = partition(make_fx(f, tracing_mode="fake")(x, y))
    assert part.device == torch.device("cuda:0")
    assert [refused.refusal.code for refused in part.refused] == ["other-device"]
    assert part.captured == 7


def test_the_order_of_operations_is_kept():
    gm = traced(lambda x: [masked_write(x.sin()).cos()], (4,), device="cpu")
    part = partition(gm, is_host=lambda tensor: False)
    inside = [
        str(node.target)
        for name in ["island_0", "between", "island_1"]
        for node in (part.gm.get_submodule(name).graph.nodes if name in part.islands else ())
        if node.op == "call_function"
    ]
    everything = [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]
    refused = [node.refusal.op for node in part.refused]
    assert [op for op in everything if op not in refused] == inside


@pytest.mark.parametrize("name", ["unsafe-op", "mask-write"])
@pytest.mark.parametrize("outputs", ["clone", "pool"])
def test_pieces_compute_what_the_whole_does(name, outputs):
    def f(x, w):
        y = deep(x, w, UNSAFE[name])
        return [y, y.view(-1), x, y.sum()]

    x, w = torch.rand(8, 8), torch.randn(8, 8) * 0.3
    gm = make_fx(f, tracing_mode="fake")(x, w)
    run = apply_cuda_graphs(gm, options={"capture": "simulated", "outputs": outputs})
    assert len(run.partition.islands) == 2
    for _ in range(5):
        x = torch.rand(8, 8)
        got, expected = run(x, w), f(x, w)
        for one, other in zip(got, expected, strict=True):
            assert torch.equal(one, other)
        assert got[2] is x
        assert got[0].data_ptr() == got[1].data_ptr()
        del got, one
    assert run.num_graphs == 2


def test_a_number_on_the_host_is_read_anew_in_each_call():
    """The simulator plays device memory in CPU memory: the graph is told which input is the host's."""

    def f(x, s):
        return [torch.relu(x * s) + s]

    gm = make_fx(f, tracing_mode="fake")(torch.randn(8), torch.tensor(1.0))
    run = apply_cuda_graphs(gm, options={"capture": "simulated"}, is_host=lambda tensor: tensor.dim() == 0)
    assert run.partition.moved and run.partition.whole is False
    for value in (1.0, 2.0, 3.0, 4.0):
        x, s = torch.randn(8), torch.tensor(value)
        assert torch.equal(run(x, s)[0], f(x, s)[0])


def test_decoding_is_captured_whole():
    model = models.Decoder()
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def f(x, *values):
        return torch.func.functional_call(model, dict(zip(state, values, strict=True)), (x,))

    with torch.no_grad():
        part = partition(make_fx(f, tracing_mode="fake")(torch.randn(16), *state.values()))
    assert part.share == 1.0 and part.refused == ()


def test_what_shares_memory_is_not_given_away():
    def f(x, w):
        a = (x @ w).relu()
        v = a.view(-1)
        n = aten.nonzero.default(a).sum()
        b = a.sin()
        m = aten.nonzero.default(b).sum()
        return [(b + v.view(8, 8)).cos() + n + m]

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    part = partition(make_fx(f, tracing_mode="fake")(x, w))
    assert len(part.islands) == 3
    disposable = disposable_inputs(part.gm)
    second = part.gm.get_submodule("island_1")
    reads_a = [node for node in second.graph.nodes if node.op == "placeholder"]
    # `v`, which the last island reads, is memory of `a`.
    assert all(str(reads_a[i]) not in ("relu", "view") for i in disposable["island_1"])
    run = apply_cuda_graphs(
        make_fx(f, tracing_mode="fake")(x, w), options={"capture": "simulated", "warmup": 0}
    )
    for _ in range(4):
        x = torch.randn(8, 8)
        assert torch.equal(run(x, w)[0], f(x, w)[0])


def test_outputs_in_memory_of_inputs_are_told():
    def f(x, y):
        return [x.view(-1)[2:], y + 1, x, torch.ops.aten._unsafe_view(y, [-1])]

    gm = make_fx(f, tracing_mode="fake")(torch.randn(2, 4), torch.randn(2, 4))
    assert returned_inputs(gm) == [{0}, frozenset(), {0}, {1}]
