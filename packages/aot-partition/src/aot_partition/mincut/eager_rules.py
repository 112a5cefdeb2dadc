"""Rules for eager kernels: what a saved value really costs, and what is cheap to compute again.

A kernel runs on its own, so nothing is gained by keeping pointwise chains together, and a value near the
backward is worth no more than one far from it. What counts is memory: the bytes of a storage, once, however
many views of it there are, and nothing for a storage that the caller holds anyway.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.joint_graph import SYMBOLIC, JointGraph
from aot_partition.mincut.network import Network
from aot_partition.mincut.tags import Tags
from aot_partition.random_replay import is_replayable

__all__ = ["BYTES_PER_SECOND", "default_recomputable_ops", "is_free", "saved_for_eager"]

BYTES_PER_SECOND = 4 * 2**30
"""What a second of recomputation is worth, in bytes not saved, where a cost model gives seconds."""


@functools.cache
def default_recomputable_ops() -> frozenset[Any]:
    """Return the operators that are recomputed on eager kernels unless one says otherwise.

    Those that PyTorch tags as pointwise, creation of constant tensors, copies and casts: their time is that of
    reading and writing their operands once. Matrix products, convolutions, reductions, gathers and whatever
    draws random numbers are not among them.
    """
    aten, prims = torch.ops.aten, torch.ops.prims
    pointwise = {
        packet
        for name in dir(aten)
        if _compat.is_packet(packet := getattr(aten, name))
        and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    }
    random = {
        packet
        for packet in pointwise
        if any(torch.Tag.nondeterministic_seeded in getattr(packet, o).tags for o in packet.overloads())
    }
    made = {aten.arange, aten.empty, aten.empty_like, aten.eye, aten.full, aten.full_like, aten.linspace}
    made |= {aten.new_empty, aten.new_full, aten.new_ones, aten.new_zeros, aten.ones, aten.ones_like}
    made |= {aten.scalar_tensor, aten.zeros, aten.zeros_like, prims.iota}
    copied = {aten._to_copy, aten.clone, aten.contiguous, aten.lift_fresh_copy, aten.masked_fill}
    copied |= {aten.reshape, aten.tril, aten.triu, prims.convert_element_type}
    return frozenset(pointwise - random | made | copied)


def is_free(joint: JointGraph) -> bytearray:
    """Mark the nodes that cost no time and no memory: views, and parts of tuples of views."""
    free = bytearray(joint.is_alias)
    for i, node in enumerate(joint.nodes):
        if free[i] and node.target is operator.getitem:
            free[i] = free[joint.inputs[i][0]]
    return free


def saved_for_eager(
    joint: JointGraph,
    *,
    recomputable_ops: Collection[Any] | None = None,
    seconds: Callable[[fx.Node], float] | None = None,
    bytes_per_second: float = BYTES_PER_SECOND,
) -> list[int]:
    """Return the positions to save so that the fewest bytes wait for the backward.

    Args:
        joint: The joint graph.
        recomputable_ops: Operators that may be recomputed. None: all that can be, if ``seconds`` is given, and
            else `default_recomputable_ops`.
        seconds: What it takes to compute a node. Without it, recomputation costs nothing.
        bytes_per_second: What a second of recomputation is worth, in bytes not saved.

    Raises:
        UnboundedCutError: the tags contradict the graph.
    """
    tags = Tags(joint)
    if recomputable_ops is None and seconds is None:
        recomputable_ops = default_recomputable_ops()
    free = is_free(joint)
    held = {key for i in (*joint.primals, *joint.forward_seeds) for key in joint.storages[i]}
    network = Network(joint)
    for i, node in enumerate(joint.nodes):
        if joint.in_tangent_closure[i]:
            continue
        if joint.required_backward[i]:
            network.backward_reads(i, "the backward returns it")
        if tags.must_recompute[i]:
            network.backward_computes(i, "it is tagged to be recomputed")
            continue
        tagged = bool(tags.must_save[i])
        of_backward = joint.from_backward[i] and not joint.in_forward[i]
        if not of_backward or tagged:
            reason = _must_not_recompute(joint, i, free, tagged, recomputable_ops)
            if reason:
                network.recomputing_costs(i, math.inf, reason)
            elif seconds is not None and not free[i] and node.op == "call_function":
                network.recomputing_costs(i, int(seconds(node) * bytes_per_second))
        if of_backward and not tagged:
            network.saving_costs(i, math.inf, "it belongs to the backward")
        else:
            network.saving_costs(i, *_weight(joint, i, bool(free[i]) and not tagged, held))
        network.users_read(i)
    return network.saved()


def _must_not_recompute(
    joint: JointGraph, i: int, free: bytearray, tagged: bool, ops: Collection[Any] | None
) -> str:
    node = joint.nodes[i]
    if node.op == "placeholder":
        return "it is an input"
    if node.op != "call_function" or node.target is operator.getitem:
        return ""
    if tagged:
        return "it is tagged to be saved"
    if joint.reads_written[i]:
        return "what it reads is overwritten"
    if joint.pinned_to_forward[i]:
        return "it writes something"
    if isinstance(joint.value(i), SYMBOLIC) or free[i]:
        return ""
    if joint.is_random[i] and (ops is not None or not is_replayable(node)):
        packet = getattr(node.target, "overloadpacket", None)
        if ops is None or packet not in ops or not is_replayable(node):
            return "it is random"
    if _compat.is_higher_order(node.target):
        return "it calls a graph"
    if ops is None or node.target in ops or getattr(node.target, "overloadpacket", None) in ops:
        return ""
    return "its operator is not among those that may be recomputed"


def _weight(joint: JointGraph, i: int, free: bool, held: Collection[int]) -> tuple[float, str]:
    value = joint.value(i)
    if isinstance(value, torch.SymFloat):
        return math.inf, "it is a symbolic float"
    if isinstance(value, SYMBOLIC):
        return 1, ""
    if isinstance(value, torch.Tensor):
        if free:
            return math.inf, "it is a view"
        if not joint.storages[i]:
            return joint.size(i), ""
        return sum(joint.storage_bytes[key] for key in joint.storages[i] if key not in held), ""
    if _compat.is_backward_state(value) or _compat.is_fake_script_object(value) or joint.is_opaque[i]:
        return 0, ""
    return math.inf, "it is not a tensor"
