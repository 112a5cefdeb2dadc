"""From a schedule over storages back to the nodes of the joint graph, views included.

Recomputing a value makes its views stale: they still hold the memory of the older making. So a view is taken
again for whoever reads it after that::

    schedule      f1           b3           f1           b0
    nodes         mm, view     mul          mm_1, view_1 mm_bw
"""

from __future__ import annotations

import operator

from torch import SymFloat

from aot_partition.extract import Assignment
from aot_partition.joint_graph import JointGraph
from aot_partition.memory.problem import Schedule
from aot_partition.memory.reading import ReadProblem

__all__ = ["unfold"]


def unfold(joint: JointGraph, read: ReadProblem, schedule: Schedule) -> Assignment:
    """Return what `extract` needs to make the two graphs of a schedule."""
    saved = _saved_nodes(joint, read, schedule)
    return Assignment(saved, _Unfolding(joint, read, saved).run(schedule))


def _saved_nodes(joint: JointGraph, read: ReadProblem, schedule: Schedule) -> list[int]:
    """Name the nodes that make what is saved, and those of which the backward only needs a number.

    The forward's own outputs are named too: they are there in any case.
    """
    storages = schedule.saved | read.problem.outputs
    saved = []
    for k, i in enumerate(read.forward_nodes):
        if not joint.storages[i]:
            if not isinstance(joint.value(i), SymFloat):
                saved.append(i)
        elif storages.issuperset(read.problem.forward[k].makes):
            saved.append(i)
        else:
            # Some results of several: each is named by the node that takes it.
            saved += [j for j in _parts(joint, i) if storages.issuperset(joint.storages[j])]
    return saved


def _parts(joint: JointGraph, i: int) -> list[int]:
    """Return the nodes that take a value of several apart."""
    return [j for j in joint.users[i] if joint.nodes[j].target is operator.getitem]


class _Unfolding:
    def __init__(self, joint: JointGraph, read: ReadProblem, saved: list[int]) -> None:
        self.joint = joint
        self.read = read
        self.operations = frozenset((*read.forward_nodes, *read.backward_nodes))
        # The forward's own outputs stay, however often what makes them runs again.
        outputs = read.problem.outputs
        self.lasting = frozenset(
            j
            for i in read.forward_nodes
            for j in _parts(joint, i)
            if joint.storages[j] and outputs.issuperset(joint.storages[j])
        )
        self.clock = 1
        # When each node was computed last; what is given from the start was computed at 0.
        self.computed_at = {j: 0 for i in saved for j in (i, *_parts(joint, i))}
        self.order: list[int] = []

    def run(self, schedule: Schedule) -> list[int]:
        joint, read = self.joint, self.read
        for entry in schedule.backward:
            i = read.forward_nodes[entry] if entry >= 0 else read.backward_nodes[~entry]
            for j in joint.inputs[i]:
                self._refresh(j)
            self._compute(i)
        for i in joint.backward_results:
            self._refresh(i)
        return self._without_unread()

    def _compute(self, i: int) -> None:
        self.computed_at[i] = self.clock
        self.clock += 1
        self.order.append(i)
        # A tuple keeps all of its parts alive, so it is taken apart at once.
        for j in _parts(self.joint, i):
            if j not in self.lasting:
                self._compute(j)

    def _without_unread(self) -> list[int]:
        """Leave out views and parts that nobody reads before they are taken again."""
        needed = set(self.joint.backward_results)
        kept = []
        for i in reversed(self.order):
            if i in needed or i in self.operations:
                needed.discard(i)
                needed.update(self.joint.inputs[i])
                kept.append(i)
        return kept[::-1]

    def _refresh(self, i: int) -> None:
        """Take a view again, and the views that it is a view of, where what they show was made since."""
        joint = self.joint
        pending = [(i, False)]
        while pending:
            j, inputs_are_fresh = pending.pop()
            if j in self.operations or j in self.lasting or joint.nodes[j].op != "call_function":
                continue
            if not inputs_are_fresh:
                pending.append((j, True))
                pending.extend((source, False) for source in joint.inputs[j])
            else:
                made = max((self.computed_at.get(source, 0) for source in joint.inputs[j]), default=0)
                if j not in self.computed_at or self.computed_at[j] < made:
                    self._compute(j)
