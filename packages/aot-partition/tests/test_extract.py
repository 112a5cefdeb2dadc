"""The two graphs of a partition: order, names, metadata, schedules, symbols, effects."""

from __future__ import annotations

import random

import pytest
import torch
from programs import random_program
from traced import called, corpus, placeholders, run_with, saved_names, step, trace

from aot_partition import _compat
from aot_partition.extract import Assignment, extract
from aot_partition.joint_graph import JointGraph
from aot_partition.partition import min_cut_partition

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def chain(x, w):
    return ((x @ w).sin().exp() @ w).tanh()


def chain_inputs():
    return [torch.randn(4, 4, requires_grad=True) for _ in range(2)]


def traced_chain():
    return trace(chain, *chain_inputs())


def positions(joint):
    return {node.name: i for i, node in enumerate(joint.nodes)}


def test_what_nothing_saved_leads_to_is_computed_again():
    traced = traced_chain()
    forward, backward = extract(JointGraph(traced.module, **traced.options), Assignment(()))
    assert saved_names(forward, traced.options) == ["primals_1", "primals_2"]
    assert len(called(backward, torch.ops.aten.mm)) > len(called(forward, torch.ops.aten.mm))


def test_only_what_the_backward_reads_is_saved():
    traced = traced_chain()
    joint = JointGraph(traced.module, **traced.options)
    forward, _ = extract(joint, Assignment(range(len(joint))))
    every = {node.name for node in traced.module.graph.nodes}
    assert set(saved_names(forward, traced.options)) < every
    # exp's gradient reads its result, so that sin's is not needed.
    assert "sin" not in saved_names(forward, traced.options)


def test_names_and_metadata_stay():
    traced = traced_chain()
    before = [dict(node.meta) for node in traced.module.graph.nodes]
    joint = JointGraph(traced.module, **traced.options)
    forward, backward = extract(joint, Assignment([positions(joint)["exp"]]))
    original = {node.name: node for node in traced.module.graph.nodes}
    for graph in (forward.graph, backward.graph):
        for node in graph.nodes:
            if node.op == "call_function":
                assert original[node.name].target is node.target
                assert node.meta["val"] is original[node.name].meta["val"]
    assert all(n.meta["autograd_backward"] for n in backward.graph.nodes if n.op == "call_function")
    assert [node.meta.keys() for node in traced.module.graph.nodes] == [meta.keys() for meta in before]
    assert placeholders(backward)[-1] == "tangents_1"


def test_outputs_are_described():
    traced = traced_chain()
    joint = JointGraph(traced.module, **traced.options)
    forward, backward = extract(joint, Assignment([positions(joint)["exp"]]))
    for gm in (forward, backward):
        output = gm.graph.output_node()
        assert len(output.meta["desc"]) == len(output.args[0])
    saved = forward.graph.output_node().meta["desc"][1:]
    assert saved == [_compat.saved_descriptor(i, version_checked=True) for i in range(len(saved))]


def test_tensors_without_version_check_come_after_those_with():
    traced = traced_chain()
    joint = JointGraph(traced.module, **traced.options)
    at = positions(joint)
    traced.node("exp").meta["saved_tensor_with_no_vc_check"] = True
    forward, backward = extract(joint, Assignment([at["exp"], at["mm"], at["tanh"]]))
    names = saved_names(forward, traced.options)
    assert names[-1] == "exp" and "tanh" in names
    assert placeholders(backward)[: len(names)] == names


def test_a_tuple_is_saved_by_its_parts():
    def function(x):
        return torch.nn.functional.layer_norm(x.sin(), (4,)).exp()

    traced = trace(function, torch.randn(4, 4, requires_grad=True))
    joint = JointGraph(traced.module, **traced.options)
    forward, backward = extract(joint, Assignment([positions(joint)["native_layer_norm"]]))
    assert not called(backward, torch.ops.aten.native_layer_norm)
    assert all(isinstance(n.meta["val"], torch.Tensor) for n in forward.graph.output_node().args[0])


def test_any_choice_computes_the_same(seed):
    rng = random.Random(seed)
    for _ in range(6):
        function, inputs = random_program(rng)

        def partition(module, joint_inputs, **options):
            joint = JointGraph(module, **options)
            saved = [i for i in range(len(joint)) if rng.random() < 0.4]
            schedule = None
            if rng.random() < 0.5:
                # Anything may be asked for, in any order and more than once.
                schedule = [rng.randrange(len(joint)) for _ in range(2 * len(joint))]
            return extract(joint, Assignment(saved, schedule))

        outputs, gradients, _ = step(function, *inputs)
        ours = run_with(partition, function, *inputs)
        # Some programs overflow, and have NaNs in eager too.
        torch.testing.assert_close(ours[0], outputs, equal_nan=True)
        torch.testing.assert_close(ours[1], gradients, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_a_schedule_may_compute_a_value_several_times():
    traced = traced_chain()
    joint = JointGraph(traced.module, **traced.options)
    at = positions(joint)
    order = [at["mm"], at["sin"], at["exp"]]
    rest = [i for i in range(len(joint)) if joint.in_tangent_closure[i] and joint.inputs[i]]
    schedule = [*order, rest[0], *order, *rest[1:]]
    _, backward = extract(joint, Assignment((), schedule))
    assert len(called(backward, torch.ops.aten.exp)) == 2
    first, second = called(backward, torch.ops.aten.exp)
    assert first.name == "exp" and second.name != "exp"


def test_effects_of_the_forward_are_not_repeated():
    def function(x, buffer):
        y = x.sin()
        buffer.add_(1)
        return (y * buffer).exp()

    inputs = [torch.randn(3, requires_grad=True), torch.ones(3)]
    traced = trace(function, *inputs)
    forward, backward = extract(JointGraph(traced.module, **traced.options), Assignment(()))
    copies = [len(called(gm, torch.ops.aten.copy_)) for gm in (forward, backward)]
    assert copies[1] == 0


@pytest.mark.parametrize("cost_model", ["eager", "torch"])
def test_nothing_is_computed_again_from_overwritten_memory(cost_model):
    """torch's own min-cut computes ``exp(buffer)`` from the new buffer, or fails on the version check."""
    import aot_core

    def function(x, buffer):
        y = x * buffer.exp()
        buffer.add_(1)
        return y

    def partition(module, joint_inputs, **options):
        return min_cut_partition(module, joint_inputs, cost_model=cost_model, **options)

    backend = aot_core.aot_autograd(name="test", fw_compiler=lambda gm, _: gm, partition_fn=partition)
    compiled = torch.compile(function, backend=backend)
    x, buffer = torch.arange(3.0).requires_grad_(), torch.ones(3)
    compiled(x, buffer).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3).exp())


def test_symbols_of_saved_sizes_come_along():
    capture = corpus()
    joint = capture.capture(capture.Case("transformer", 1, dynamic=True))
    forward, backward = min_cut_partition(joint.module, **joint.options)
    returned = forward.graph.output_node().args[0][joint.options["num_fwd_outputs"] :]
    numbers = [isinstance(node.meta["val"], torch.SymInt) for node in returned]
    assert any(numbers)
    assert numbers == sorted(numbers), "numbers come last in the forward"
    given = [n for n in backward.graph.nodes if n.op == "placeholder"]
    symbolic = [isinstance(n.meta["val"], torch.SymInt) for n in given]
    assert symbolic == sorted(symbolic, reverse=True), "and first in the backward"
    bound = {n.meta["val"].node.expr for n, is_number in zip(given, symbolic, strict=True) if is_number}
    for node in given:
        assert _compat.free_symbols(node.meta["val"]) <= bound
    assert not any(isinstance(node.meta["val"], torch.SymFloat) for node in given)


def test_batch_norm_is_recomputed_without_its_statistics():
    """They have been overwritten, and its result does not depend on them."""
    import aot_core

    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU())

    def partition(module, joint_inputs, **options):
        halves = extract(JointGraph(module, **options), Assignment(()))
        assert called(halves[1], torch.ops.aten._native_batch_norm_legit_functional)
        return halves

    def run(function):
        model.zero_grad()
        model[1].reset_running_stats()
        torch.manual_seed(0)
        function(torch.randn(2, 2, 6, 6)).square().sum().backward()
        return [p.grad for p in model.parameters()] + [model[1].running_mean.clone()]

    expected = run(model)
    backend = aot_core.aot_autograd(name="test", fw_compiler=lambda gm, _: gm, partition_fn=partition)
    torch.testing.assert_close(run(torch.compile(model, backend=backend)), expected)
