"""Orders of the backward: each respects what depends on what, and each frees what it says."""

from __future__ import annotations

import random

import pytest
import torch
from memory_cases import Transformer, capture
from programs import random_program
from traced import trace

from aot_partition.joint_graph import JointGraph
from aot_partition.memory.orders import backward_orders
from aot_partition.memory.planner import MemoryPlanner

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_orders_respect_dependencies(seed):
    rng = random.Random(seed)
    for _ in range(12):
        function, inputs = random_program(rng)
        traced = trace(function, *inputs)
        joint = JointGraph(traced.module, **traced.options)
        orders = backward_orders(joint)
        for order in orders:
            assert sorted(order) == sorted(orders[0])
            place = {i: number for number, i in enumerate(order)}
            for i in order:
                assert all(place[j] < place[i] for j in joint.inputs[i] if j in place)
            effects = [i for i in order if joint.impure[i] or joint.is_collective[i]]
            assert effects == sorted(effects, key=orders[0].index)


def test_three_orders_are_planned():
    """Decomposed, a backward has sums for biases that can run early or late."""
    step = capture(
        Transformer(2), torch.randn(8, 16, 32), decompositions=torch._decomp.core_aten_decompositions()
    )
    planner = MemoryPlanner(step.read(), cost_model=lambda node: 1e-6, evaluations=4)
    assert len(planner.readings) == 3
    plan = planner.plan(0.8)
    assert plan.peak <= 0.8 * plan.unplanned_peak
