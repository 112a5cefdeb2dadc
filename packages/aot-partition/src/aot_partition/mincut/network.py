"""From rules about single nodes to a flow network, and back to the values that are saved.

Each node becomes two vertices::

    source ──recompute──> in ──save──> out ──∞──> in of each user
                          in ──∞──> sink    must be computed by the backward
                          out ──∞──> sink   must be there for the backward

A cut puts on the sink's side what the backward computes. It pays ``save`` for a value that comes from the
source's side, and ``recompute`` for a node that the forward computes too; infinity forbids either.

What only the backward can compute, most of a joint graph, is decided: an edge to it is an edge to the sink.
"""

from __future__ import annotations

import itertools
import math

from aot_partition.errors import UnboundedCutError
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.cut import UnboundedError, minimum_cut

__all__ = ["Network"]


class Network:
    """The flow network of a joint graph, grown edge by edge."""

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._source = 2 * len(joint)
        self._sink = self._source + 1
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._capacities: list[float] = []
        self._reasons: dict[int, str] = {}

    def recomputing_costs(self, i: int, cost: float, reason: str = "") -> None:
        """Charge for a node that forward and backward compute. Infinity: the backward must not."""
        self._add(self._source, 2 * i, cost, reason)

    def saving_costs(self, i: int, cost: float, reason: str = "") -> None:
        """Charge for saving a node's value. Infinity: it can't be saved."""
        self._add(2 * i, 2 * i + 1, cost, reason)

    def backward_computes(self, i: int, reason: str) -> None:
        """Have the backward compute a node."""
        self._add(2 * i, self._sink, math.inf, reason)

    def backward_reads(self, i: int, reason: str) -> None:
        """Have a node's value there for the backward, saved or computed again."""
        self._add(2 * i + 1, self._sink, math.inf, reason)

    def users_read(self, i: int) -> None:
        """Have a node's value where its users are computed."""
        only_backward = self._joint.in_tangent_closure
        tail = 2 * i + 1
        for user in self._joint.users[i]:
            self._tails.append(tail)
            self._heads.append(self._sink if only_backward[user] else 2 * user)
            self._capacities.append(math.inf)

    def _add(self, tail: int, head: int, capacity: float, reason: str) -> None:
        if reason:
            self._reasons[len(self._tails)] = reason
        self._tails.append(tail)
        self._heads.append(head)
        self._capacities.append(capacity)

    def saved(self) -> list[int]:
        """Cut the network; return the positions of the values that the cut saves.

        Raises:
            UnboundedCutError: a value that the backward needs can be neither saved nor recomputed.
        """
        try:
            cut = minimum_cut(
                self._sink + 1,
                self._tails,
                self._heads,
                self._capacities,
                source=self._source,
                sink=self._sink,
            )
        except UnboundedError as error:
            raise UnboundedCutError(self._explain(error.path)) from None
        side = cut.sink_side
        return [
            i
            for i, (inside, out) in enumerate(zip(side[:-2:2], side[1:-2:2], strict=True))
            if out and not inside
        ]

    def _explain(self, path: list[int]) -> str:
        joint, nodes = self._joint, self._joint.nodes
        chain = list(dict.fromkeys(vertex // 2 for vertex in path[1:-1]))
        wanted = set(itertools.pairwise(path))
        said = []
        for edge, reason in self._reasons.items():
            tail, head = self._tails[edge], self._heads[edge]
            if (tail, head) in wanted and self._capacities[edge] == math.inf:
                subject = head if tail == self._source else tail
                text = f"{nodes[subject // 2].name!r}: {reason}"
                if text not in said:
                    said.append(text)
        last = next((user for user in joint.users[chain[-1]] if joint.in_tangent_closure[user]), None)
        if last is not None and path[-2] % 2:
            chain.append(last)
            said.append(f"{nodes[last].name!r}: only the backward can compute it")
        return (
            "The backward needs a value that can be neither saved nor recomputed, along "
            f"{' -> '.join(nodes[i].name for i in chain)} ({'; '.join(said)}). Remove one of these constraints: "
            "a checkpointing tag, or an operator that is missing in recomputable_ops."
        )
