"""Random numbers: whatever the backward computes again, it draws what the forward drew."""

from __future__ import annotations

import random

import pytest
import torch
from programs import RANDOM, random_program
from traced import called, run_with, step, trace

from aot_partition.extract import Assignment, extract
from aot_partition.joint_graph import JointGraph
from aot_partition.partition import min_cut_partition

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def save_nothing(module, joint_inputs, **options):
    """Recompute all that can be."""
    return extract(JointGraph(module, **options), Assignment(()))


def save_some(rng):
    def partition(module, joint_inputs, **options):
        joint = JointGraph(module, **options)
        return extract(joint, Assignment([i for i in range(len(joint)) if rng.random() < 0.5]))

    return partition


def assert_same_step(partition, function, inputs, seed=0):
    outputs, gradients, after = step(function, *inputs, seed=seed)
    ours = run_with(partition, function, *inputs, seed=seed)
    torch.testing.assert_close(ours[0], outputs, equal_nan=True)
    torch.testing.assert_close(ours[1], gradients, equal_nan=True)
    # Nor does a replay move the generator.
    torch.testing.assert_close(ours[2], after, rtol=0, atol=0)
    return ours[3]


@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_each_random_operation_is_replayed(number, seed):
    operation = RANDOM[number]

    def function(x):
        return operation(x.sin()).exp()

    inputs = [torch.rand(4, 4).requires_grad_()]
    forward, backward = assert_same_step(save_nothing, function, inputs, seed)
    replays = [n for n in backward.graph.nodes if "run_with_rng_state" in str(n.target)]
    saves = [n for n in forward.graph.nodes if "run_and_save_rng_state" in str(n.target)]
    assert len(replays) == len(saves) == 1, "the test would pass without a replay"


def test_random_programs_under_random_choices(seed):
    rng = random.Random(seed)
    for _ in range(5):
        function, inputs = random_program(rng, random_ops=True)
        assert_same_step(
            rng.choice([save_nothing, save_some(rng), min_cut_partition]), function, inputs, seed
        )


@pytest.mark.sweep
def test_many_random_programs_under_random_choices(seed):
    rng = random.Random(seed)
    for _ in range(600):
        function, inputs = random_program(rng, random_ops=True)
        for partition in (save_nothing, save_some(rng), min_cut_partition):
            assert_same_step(partition, function, inputs, seed)


def test_without_a_budget_nothing_random_is_drawn_again():
    def function(x):
        return torch.nn.functional.dropout(x.sin(), 0.5, training=True).exp()

    *_, (_, backward) = run_with(min_cut_partition, function, torch.rand(4, 4).requires_grad_())
    assert not called(backward, torch.ops.aten.native_dropout)


def test_attention_without_dropout_is_not_random():
    def function(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    traced = trace(function, torch.rand(1, 2, 4, 8).requires_grad_())
    joint = JointGraph(traced.module, **traced.options)
    assert not any(joint.is_random)


def test_what_the_backward_draws_stays_in_the_backward():
    class Noise(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.rand_like(gradient)

    def function(x):
        return Noise.apply(x.sin()).exp()

    for cost_model in ("eager", "torch"):

        def partition(module, joint_inputs, cost_model=cost_model, **options):
            return min_cut_partition(module, joint_inputs, cost_model=cost_model, **options)

        forward, backward = assert_same_step(partition, function, [torch.rand(4, 4).requires_grad_()])
        assert not called(forward, torch.ops.aten.rand_like)
        assert called(backward, torch.ops.aten.rand_like)


def test_a_value_drawn_twice_from_one_state():
    """A schedule may compute a random value several times: each time the same."""

    def function(x):
        return torch.nn.functional.dropout(x, 0.5, training=True).sin().exp()

    def partition(module, joint_inputs, **options):
        joint = JointGraph(module, **options)
        names = {node.name: i for i, node in enumerate(joint.nodes)}
        drawn = names["native_dropout"], names["getitem"], names["getitem_1"]
        backward = [i for i in range(len(joint)) if joint.in_tangent_closure[i] and joint.inputs[i]]
        order = [*drawn]
        for i in backward:
            order += [i, *drawn]
        return extract(joint, Assignment((), schedule=order))

    _, backward = assert_same_step(partition, function, [torch.rand(4, 4).requires_grad_()])
    assert len(called(backward, torch.ops.aten.native_dropout)) > 1
