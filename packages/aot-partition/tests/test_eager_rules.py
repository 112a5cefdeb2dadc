"""The rules for eager kernels: no choice of saved values keeps fewer bytes for the backward."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from programs import random_program
from traced import trace

from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.eager_rules import default_recomputable_ops, saved_for_eager

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

aten = torch.ops.aten
LIMIT = 11


def makes_memory(joint, i):
    """Tell whether a node's value is a tensor in memory of its own; independent of the code under test."""
    value = joint.nodes[i].meta.get("val")
    if not isinstance(value, torch.Tensor) or joint.nodes[i].op != "call_function":
        return False
    mine = value.untyped_storage()._cdata
    for node in joint.nodes[i].all_input_nodes:
        other = node.meta.get("val")
        if isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == mine:
            return False
    return True


def may_recompute(joint, i):
    node = joint.nodes[i]
    if node.op == "get_attr" or "getitem" in str(node.target):
        return True
    packet = getattr(node.target, "overloadpacket", None)
    return packet in default_recomputable_ops() or (
        isinstance(node.meta.get("val"), torch.Tensor) and not makes_memory(joint, i)
    )


def bytes_of(joint, saved):
    """Return what waits for the backward with a choice of saved values, or None if it is not enough."""
    inputs = {*joint.primals}
    wanted = [i for i in range(len(joint)) if joint.required_backward[i] and not joint.in_tangent_closure[i]]
    wanted += [j for i in range(len(joint)) if joint.in_tangent_closure[i] for j in joint.inputs[i]]
    seen = set()
    read = {}
    while wanted:
        i = wanted.pop()
        if i in seen or i in inputs or joint.in_tangent_closure[i]:
            continue
        seen.add(i)
        if i in saved:
            storage = joint.nodes[i].meta["val"].untyped_storage()
            read[storage._cdata] = storage.nbytes()
        elif (joint.from_backward[i] and not joint.in_forward[i]) or may_recompute(joint, i):
            wanted += joint.inputs[i]
        else:
            return None
    return sum(read.values())


def check(rng, count):
    compared = 0
    for _ in range(count):
        function, inputs = random_program(rng, steps=rng.randrange(2, 7))
        traced = trace(function, *inputs)
        joint = JointGraph(traced.module, **traced.options)
        candidates = [
            i
            for i in range(len(joint))
            if joint.in_forward[i] and isinstance(joint.value(i), torch.Tensor) and joint.nodes[i].op != "placeholder"
            and (makes_memory(joint, i) or "getitem" in str(joint.nodes[i].target))
        ]  # fmt: skip
        if not 1 < len(candidates) <= LIMIT:
            continue
        choices = (
            set(itertools.compress(candidates, mask))
            for mask in itertools.product((0, 1), repeat=len(candidates))
        )
        costs = [cost for choice in choices if (cost := bytes_of(joint, choice)) is not None]
        if not costs:
            continue  # the backward needs what neither can be recomputed nor is among the candidates
        best = min(costs)
        compared += 1
        ours = bytes_of(joint, set(saved_for_eager(joint)))
        assert ours == best, traced.module.code
    return compared


def test_no_choice_is_smaller(seed):
    assert check(random.Random(seed), 12) > 2


@pytest.mark.sweep
def test_no_choice_is_smaller_in_many_programs(seed):
    assert check(random.Random(seed), 400) > 100


def test_default_operators():
    ops = default_recomputable_ops()
    assert {aten.add, aten.gelu, aten.clone, aten._to_copy, aten.full, aten.where} <= ops
    assert not ops & {
        aten.mm,
        aten.convolution,
        aten.sum,
        aten._softmax,
        aten.bernoulli,
        aten.rand,
        aten.index,
    }
    assert not ops & {aten.native_dropout, aten.normal, aten.rand_like, aten.randn_like}
