"""What people reported of torch's own partitioner, each as a small test."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from traced import called, placeholders, run_with, saved_names, step, trace

import aot_core
from aot_partition import min_cut_partition
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.eager_rules import saved_for_eager

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

MUST_SAVE, MUST_RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE


def cut(function, *inputs, tags=(), **options):
    """Return the names of what is saved, and both graphs."""
    traced = trace(function, *inputs)
    for name, tag in dict(tags).items():
        traced.node(name).meta["recompute"] = tag
    halves = min_cut_partition(traced.module, None, **traced.options, **options)
    for half in halves:
        half.graph.lint()
    return saved_names(halves[0], traced.options), *halves


def backend(**options):
    def partition(module, joint_inputs, **kwargs):
        return min_cut_partition(module, joint_inputs, **kwargs, **options)

    return aot_core.aot_autograd(name="test", fw_compiler=lambda gm, _: gm, partition_fn=partition)


def test_dropout_that_drops_nothing_does_not_save_its_input_twice():
    """pytorch/pytorch#115249: it becomes a clone, and clone and original were saved."""

    def function(q, k, v):
        weights = torch.nn.functional.dropout((q @ k).softmax(-1), 0.0, training=True)
        return weights @ v

    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    traced = trace(function, *inputs)
    assert traced.nodes(aten.clone) or traced.nodes(aten.native_dropout)
    saved, *_ = cut(function, *inputs)
    made = [name for name in saved if not name.startswith("primals")]
    assert len(made) == 1, made


@pytest.mark.parametrize("cost_model", ["eager", "torch"])
@pytest.mark.parametrize("tag", [MUST_SAVE, MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE])
@pytest.mark.parametrize("where", ["tuple", "parts", "both"])
def test_tags_on_tuples(cost_model, tag, where):
    """pytorch/pytorch#167708: NetworkXUnbounded where a tuple is tagged and its parts are not."""

    def function(x):
        return torch.nn.functional.layer_norm(x.sin(), (8,)).exp()

    tags = {}
    if where in ("tuple", "both"):
        tags["native_layer_norm"] = tag
    if where in ("parts", "both"):
        tags |= dict.fromkeys(("getitem", "getitem_1", "getitem_2"), tag)
    x = torch.randn(8, 8, requires_grad=True)
    saved, _, backward = cut(function, x, tags=tags, cost_model=cost_model)
    again = called(backward, aten.native_layer_norm)
    if tag is MUST_SAVE:
        assert not again
    elif where != "parts":
        assert again and not {"getitem_1", "getitem_2"} & set(saved)


def test_a_cast_is_not_saved_beside_what_it_was_cast_from():
    def function(x, w):
        y = (x @ w).to(torch.float32)
        return (y.sin() * y).to(torch.bfloat16) @ w

    inputs = [torch.randn(8, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    traced = trace(function, *inputs)
    assert traced.nodes(aten._to_copy)
    joint = JointGraph(traced.module, **traced.options)
    saved = [joint.nodes[i] for i in saved_for_eager(joint)]
    assert not [n for n in saved if n.meta["val"].dtype == torch.float32 and n.op != "placeholder"]


def test_a_quantised_copy_of_a_weight_is_made_again():
    """pytorch/pytorch#141881: fp8 copies of weights were saved, though the weights are there anyway."""

    def function(x, w):
        scale = 448.0 / w.abs().amax()
        quantised = (w * scale).to(torch.float8_e4m3fn)
        return (x @ (quantised.to(torch.float32) / scale)).sin()

    inputs = [torch.randn(32, 32, requires_grad=True), torch.randn(32, 32)]
    saved, forward, _ = cut(function, *inputs)
    dtypes = {n.name: n.meta["val"].dtype for n in forward.graph.nodes if n.op == "call_function"}
    big = [n for n in saved if n in dtypes and forward_node(forward, n).meta["val"].numel() > 1]
    assert all(dtypes[name] != torch.float8_e4m3fn for name in big)


def forward_node(gm, name):
    return next(node for node in gm.graph.nodes if node.name == name)


def test_what_eager_computes_in_the_backward_stays_there():
    """pytorch/pytorch#146693: a large value was moved to the forward and saved."""

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            large = torch.outer(x, x)
            return large.sum(0).cos() * gradient

    def function(x):
        return Outer.apply(x * 2)

    saved, forward, _ = cut(function, torch.randn(16, requires_grad=True))
    assert all(forward_node(forward, name).meta["val"].dim() == 1 for name in saved)
    sizes = [n.meta["val"].numel() for n in forward.graph.nodes if n.op == "call_function"]
    assert max(sizes) == 16


@pytest.mark.parametrize("cost_model", ["eager", "torch"])
def test_a_write_in_the_backward_stays_there(cost_model):
    """pytorch/pytorch#174124, #127561: writes of the backward must not move to the forward."""
    counter = torch.zeros(1)

    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, counter):
            ctx.save_for_backward(counter)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            (counter,) = ctx.saved_tensors
            counter.add_(1)
            return gradient * 2, None

    def function(x, counter):
        return Count.apply(x.sin(), counter).exp()

    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(function, backend=backend(cost_model=cost_model))
    out = compiled(x, counter)
    assert counter.item() == 0
    out.sum().backward()
    assert counter.item() == 1


def test_redundant_products_of_sizes_are_not_saved():
    def function(x):
        y = x.sin()
        return y.reshape(x.shape[0] * x.shape[1] * 2).exp()

    x = torch.randn(6, 4, 2, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    halves = []

    def partition(module, joint_inputs, **options):
        halves.append((*min_cut_partition(module, joint_inputs, **options), options))
        return halves[0][:2]

    compiled = torch.compile(
        function,
        backend=aot_core.aot_autograd(name="sizes", fw_compiler=lambda gm, _: gm, partition_fn=partition),
    )
    compiled(x).sum().backward()
    forward, _, options = halves[0]
    numbers = [
        n
        for n in saved_names(forward, options)
        if isinstance(forward_node(forward, n).meta["val"], torch.SymInt)
    ]
    assert len(numbers) <= 1, numbers


def test_inputs_keep_their_names():
    _, forward, backward = cut(
        lambda x, w: (x @ w).sin(), *(torch.randn(3, 3, requires_grad=True) for _ in "xw")
    )
    assert placeholders(forward) == ["primals_1", "primals_2"]
    assert "tangents_1" in placeholders(backward)


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
def test_collectives_are_never_repeated(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("waits for a torch with torch.distributed")
    from torch.distributed import _functional_collectives as collectives

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:

        def function(x):
            gathered = collectives.all_gather_tensor(x.sin(), gather_dim=0, group=distributed.group.WORLD)
            return gathered.exp().cos()

        traced = trace(function, torch.randn(4, 4, requires_grad=True))
        for cost_model in ("eager", "torch", lambda node: 0.0):
            _, backward = min_cut_partition(traced.module, cost_model=cost_model, **traced.options)
            assert not called(backward, torch.ops._c10d_functional.all_gather_into_tensor)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("cost_model", ["eager", "torch"])
def test_checkpointed_regions_are_honoured(cost_model):
    """Selective checkpointing tags operators: products are saved, the rest is recomputed."""

    def policy(context, op, *args, **kwargs):
        return MUST_SAVE if op is aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    def block(x, w):
        return torch.nn.functional.dropout(((x @ w).sin() @ w).exp(), 0.3, training=True)

    def function(x, w):
        return checkpoint(
            block,
            x,
            w,
            use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
        )

    halves = []

    def partition(module, joint_inputs, **options):
        halves.append(min_cut_partition(module, joint_inputs, cost_model=cost_model, **options))
        return halves[-1]

    compiled = torch.compile(
        function,
        backend=aot_core.aot_autograd(name="sac", fw_compiler=lambda gm, _: gm, partition_fn=partition),
    )
    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
    expected = step(lambda *a: block(*a), *inputs)
    actual = step(compiled, *inputs)
    torch.testing.assert_close(actual[:2], expected[:2])
    ((forward, backward),) = halves
    again = {n.name for n in forward.graph.nodes} & {n.name for n in called(backward, aten.mm)}
    assert not again, "a product was computed again"
    assert called(backward, aten.sin)


def test_with_torchs_own_functions_and_no_backward():
    def function(x, y):
        return x * 2, y.detach() * 3

    *_, (_, backward) = run_with(
        min_cut_partition, function, torch.randn(3, requires_grad=True), torch.randn(3)
    )
    assert len(backward.graph.find_nodes(op="placeholder")) >= 1


@pytest.mark.slow
def test_as_inductors_partitioner():
    from aot_partition import MinCutPartitioner

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    x = torch.randn(3, 4)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for cost_model in ("torch", "eager"):
        model.zero_grad()
        torch.compiler.reset()
        options = {"custom_partitioner_fn": MinCutPartitioner(cost_model=cost_model)}
        torch.compile(model, options=options)(x).sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)
