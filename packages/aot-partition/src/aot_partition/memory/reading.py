"""Read a joint graph as a `Problem`: operations over storages, in place of nodes with views between them.

::

    %t = aten.t(%w)            a view of a parameter: nothing to plan
    %mm = aten.mm(%x, %t)      forward operation 0, makes storage 3
    %v = aten.view(%mm, …)     a view: whoever reads it reads storage 3
    %gelu = aten.gelu(%v)      forward operation 1, reads 3, makes 4
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from aot_partition import _compat
from aot_partition.joint_graph import JointGraph
from aot_partition.memory.problem import Operation, Problem
from aot_partition.random_replay import is_replayable

__all__ = ["ReadProblem", "backward_order", "read_problem"]


@dataclasses.dataclass(frozen=True)
class ReadProblem:
    """A problem, and which nodes of the joint graph its operations are.

    Args:
        problem: For the planner.
        forward_nodes: Position in the joint graph of each operation of the forward.
        backward_nodes: The same of the backward.
    """

    problem: Problem
    forward_nodes: tuple[int, ...]
    backward_nodes: tuple[int, ...]


def read_problem(
    joint: JointGraph,
    *,
    seconds: Callable[[fx.Node], float],
    scratch: Callable[[fx.Node], int],
    order: Sequence[int] | None = None,
) -> ReadProblem:
    """Read a joint graph.

    Args:
        joint: The joint graph.
        seconds: How long a node takes.
        scratch: What its kernel allocates inside, in bytes.
        order: Positions of the backward's nodes in the order in which they are to run; by default
            `backward_order`.
    """
    static = {
        s for i, node in enumerate(joint.nodes) if node.op != "call_function" for s in joint.storages[i]
    }
    made: set[int] = set()

    def operation(i: int) -> Operation | None:
        read = {s for j in joint.inputs[i] for s in joint.storages[j]}
        makes = tuple(s for s in joint.storages[i] if s not in read and s not in static)
        moved = tuple(sorted(read - static))
        if not makes and ((joint.is_alias[i] and joint.storages[i]) or not moved):
            return None
        made.update(makes)
        return Operation(
            joint.nodes[i].name,
            reads=moved,
            makes=makes,
            seconds=seconds(joint.nodes[i]),
            scratch=scratch(joint.nodes[i]),
            replayable=_is_replayable(joint, i),
        )

    forward: list[Operation] = []
    forward_nodes: list[int] = []
    for i, node in enumerate(joint.nodes):
        if joint.in_forward[i] and node.op == "call_function" and (one := operation(i)):
            forward.append(one)
            forward_nodes.append(i)
    in_forward = frozenset(made)
    backward: list[Operation] = []
    backward_nodes: list[int] = []
    for i in backward_order(joint) if order is None else order:
        if one := operation(i):
            backward.append(one)
            backward_nodes.append(i)

    def storages(nodes: Sequence[int]) -> frozenset[int]:
        return frozenset(s for i in nodes for s in joint.storages[i] if s not in static)

    tangents = {s for i in joint.tangents for s in joint.storages[i]}
    problem = Problem(
        forward=tuple(forward),
        backward=tuple(backward),
        sizes=tuple(joint.storage_bytes),
        outputs=storages(joint.forward_results) & in_forward,
        gradients=storages(joint.backward_results) - in_forward,
        tangent_bytes=sum(joint.storage_bytes[s] for s in tangents),
        never_saved=frozenset(
            s
            for i, policy in enumerate(joint.policy)
            if policy is CheckpointPolicy.MUST_RECOMPUTE
            for s in joint.storages[i]
        ),
    )
    return ReadProblem(problem, tuple(forward_nodes), tuple(backward_nodes))


def backward_order(joint: JointGraph) -> list[int]:
    """Return the backward's nodes in autograd's own order.

    That is the order of the trace, except that what depends on no tangent waits until it is needed: it may
    stand among the forward's nodes, long before.
    """
    order: list[int] = []
    placed = bytearray(joint.in_forward)

    def place(last: int) -> None:
        pending = [last]
        while pending:
            i = pending[-1]
            missing = [
                j for j in reversed(joint.inputs[i]) if not placed[j] and joint.nodes[j].op == "call_function"
            ]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if not placed[i]:
                placed[i] = 1
                order.append(i)

    for i, node in enumerate(joint.nodes):
        if joint.in_tangent_closure[i] and node.op == "call_function" and not placed[i]:
            place(i)
    for i in joint.backward_results:
        if not placed[i] and joint.nodes[i].op == "call_function":
            place(i)
    return order


def _is_replayable(joint: JointGraph, i: int) -> bool:
    node = joint.nodes[i]
    if (
        joint.reads_written[i]
        or joint.is_collective[i]
        or joint.pinned_to_forward[i]
        or _compat.is_mutable_schema(node.target)
        or joint.policy[i] is CheckpointPolicy.MUST_SAVE
    ):
        return False
    if joint.is_random[i]:
        return is_replayable(node)
    # fx calls impure what may draw random numbers, such as attention, also where it draws none.
    return not joint.impure[i] or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
