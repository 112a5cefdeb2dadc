"""An exact minimum cut, for networks in which nearly everything is decided by infinite capacities.

Networks made of joint graphs have tens of thousands of vertices, and a core of a few dozen that a flow
algorithm is needed for. The stages before it take time linear in the number of edges::

    1  what infinite edges tie to the source or to the sink            decided
    2  what lies on no path from source to sink                        decided
    3  a vertex that can't be worth separating from its only           merged
       predecessor or its only successor
    4  Dinic's algorithm on each connected component that is left

Of all minimum cuts this gives the one nearest to the sink, edge for edge: the one that separates from the
source whatever can't reach the sink in the residual graph.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

__all__ = ["Cut", "UnboundedError", "minimum_cut"]


class UnboundedError(Exception):
    """Source and sink are joined by infinite capacities.

    Args:
        path: The vertices of such a path, source and sink included.
    """

    def __init__(self, path: list[int]) -> None:
        super().__init__(f"a path of infinite capacity: {path}")
        self.path = path


@dataclasses.dataclass(frozen=True)
class Cut:
    """A minimum cut.

    Args:
        value: The sum of the capacities that it cuts.
        sink_side: 1 for each vertex on the sink's side.
        core: How many vertices were left to the flow algorithm.
    """

    value: float
    sink_side: bytearray
    core: int


def minimum_cut(
    count: int,
    tails: Sequence[int],
    heads: Sequence[int],
    capacities: Sequence[float],
    *,
    source: int,
    sink: int,
) -> Cut:
    """Cut a network where it costs least.

    Args:
        count: Number of vertices; they are ``0`` to ``count - 1``.
        tails: Where each edge starts.
        heads: Where it ends. Several edges may join the same two vertices.
        capacities: What it costs to cut it, at least 0. ``math.inf`` forbids it. Integers of any size are
            exact.
        source: A vertex.
        sink: Another.

    Raises:
        UnboundedError: every cut is infinite.
    """
    out = _Adjacency(count, tails, heads, capacities)
    into = _Adjacency(count, heads, tails, capacities)
    at_source = out.reach(source, infinite=True)
    if at_source[sink]:
        raise UnboundedError(_infinite_path(source, sink, out))
    at_sink = into.reach(sink, infinite=True)
    reached = out.reach_beyond(at_source, stop=at_sink)
    reaching = into.reach_beyond(at_sink, stop=at_source)

    undecided = bytearray(
        r and q and not s and not t for r, q, s, t in zip(reached, reaching, at_source, at_sink, strict=True)
    )
    core = _Core(undecided, at_source, at_sink, tails, heads, capacities, source, sink)
    core.contract()
    value = core.value
    core_size = 0
    for component in core.components():
        core_size += len(component)
        flow, below = _dinic(component, core.successors, core.predecessors, source, sink)
        value += flow
        for vertex in below:
            core.on_sink_side.add(vertex)

    side = bytearray(count)
    for vertex in range(count):
        if at_sink[vertex] or (reaching[vertex] and not reached[vertex]):
            side[vertex] = 1
        elif undecided[vertex]:
            root = core.find(vertex)
            side[vertex] = root == sink or root in core.on_sink_side
    return Cut(value, side, core_size)


class _Adjacency:
    """The edges by the vertex where they start, in flat arrays: small lists would keep the collector busy."""

    def __init__(
        self, count: int, starts: Sequence[int], ends: Sequence[int], capacities: Sequence[float]
    ) -> None:
        first = [0] * (count + 1)
        for start in starts:
            first[start + 1] += 1
        for vertex in range(count):
            first[vertex + 1] += first[vertex]
        place = first[:-1]
        self.first = first
        self.ends = [0] * len(starts)
        self.capacities: list[float] = [0] * len(starts)
        for start, end, capacity in zip(starts, ends, capacities, strict=True):
            at = place[start]
            place[start] = at + 1
            self.ends[at] = end
            self.capacities[at] = capacity

    def reach(self, start: int, *, infinite: bool) -> bytearray:
        """Mark what can be reached from a vertex; by infinite edges only, if so asked."""
        seen = bytearray(len(self.first) - 1)
        seen[start] = 1
        return self._spread(seen, [start], math.inf if infinite else 0, None)

    def reach_beyond(self, start: bytearray, *, stop: bytearray) -> bytearray:
        """Mark what can be reached from marked vertices, without going beyond ``stop``."""
        return self._spread(bytearray(start), [vertex for vertex, mark in enumerate(start) if mark], 0, stop)

    def _spread(self, seen: bytearray, pending: list[int], above: float, stop: bytearray | None) -> bytearray:
        first, ends, capacities = self.first, self.ends, self.capacities
        while pending:
            vertex = pending.pop()
            if stop is not None and stop[vertex]:
                continue
            for place in range(first[vertex], first[vertex + 1]):
                end = ends[place]
                if not seen[end]:
                    capacity = capacities[place]
                    if capacity > above or (capacity == above and above > 0):
                        seen[end] = 1
                        pending.append(end)
        return seen


def _infinite_path(source: int, sink: int, out: _Adjacency) -> list[int]:
    previous = {source: source}
    queue = [source]
    for vertex in queue:
        if vertex == sink:
            break
        for place in range(out.first[vertex], out.first[vertex + 1]):
            end = out.ends[place]
            if out.capacities[place] == math.inf and end not in previous:
                previous[end] = vertex
                queue.append(end)
    path = [sink]
    while path[-1] != source:
        path.append(previous[path[-1]])
    return path[::-1]


class _Core:
    """What is left to decide, as a graph that shrinks: merged vertices act as one."""

    def __init__(
        self,
        undecided: bytearray,
        at_source: bytearray,
        at_sink: bytearray,
        tails: Sequence[int],
        heads: Sequence[int],
        capacities: Sequence[float],
        source: int,
        sink: int,
    ) -> None:
        self.source, self.sink = source, sink
        self.value: float = 0
        self.on_sink_side: set[int] = set()
        self._merged: dict[int, int] = {}
        vertices = [vertex for vertex, open_ in enumerate(undecided) if open_]
        self.successors: dict[int, dict[int, float]] = {v: {} for v in (*vertices, source, sink)}
        self.predecessors: dict[int, dict[int, float]] = {v: {} for v in (*vertices, source, sink)}
        for tail, head, capacity in zip(tails, heads, capacities, strict=True):
            if capacity <= 0 or tail == head:
                continue
            if at_source[tail]:
                tail = source
            elif not undecided[tail]:
                continue
            if at_sink[head]:
                head = sink
            elif not undecided[head]:
                continue
            if tail == source and head == sink:
                self.value += capacity
            else:
                self._join(tail, head, capacity)

    def _join(self, tail: int, head: int, capacity: float) -> None:
        out = self.successors[tail]
        out[head] = self.predecessors[head][tail] = out.get(head, 0) + capacity

    def find(self, vertex: int) -> int:
        """Return the vertex that stands for a merged one."""
        merged = self._merged
        trail = []
        while vertex in merged:
            trail.append(vertex)
            vertex = merged[vertex]
        for passed in trail:
            merged[passed] = vertex
        return vertex

    def contract(self) -> None:
        """Merge until nothing can be merged.

        For each vertex, with what flows into it at most and what flows out of it at most: where the one is no
        bottleneck for the other, no cut need pass there.
        """
        source, sink = self.source, self.sink
        # Vertices late in the graph first: a merge then tends to enable the next one.
        pending = [vertex for vertex in self.successors if vertex not in (source, sink)]
        while pending:
            vertex = pending.pop()
            if vertex in self._merged:
                continue
            out, into = self.successors[vertex], self.predecessors[vertex]
            if not out:
                self._merge(vertex, source, pending)
                continue
            if not into:
                self._merge(vertex, sink, pending)
                continue
            leaving, entering = sum(out.values()), sum(into.values())
            # Not `>=` in the second case and the fourth: of two equal cuts the one nearer to the sink.
            if len(into) == 1 and entering >= leaving:
                self._merge(vertex, next(iter(into)), pending)
            elif len(out) == 1 and leaving > entering:
                self._merge(vertex, next(iter(out)), pending)
            elif into.get(source, 0) >= leaving:
                self._merge(vertex, source, pending)
            elif out.get(sink, 0) > entering:
                self._merge(vertex, sink, pending)

    def _merge(self, one: int, other: int, pending: list[int]) -> None:
        """Make one vertex of two. The smaller is moved, so that each edge moves rarely."""
        source, sink = self.source, self.sink
        if other not in (source, sink) and len(self.successors[other]) + len(self.predecessors[other]) < len(
            self.successors[one]
        ) + len(self.predecessors[one]):
            one, other = other, one
        self._merged[one] = other
        out, into = self.successors.pop(one), self.predecessors.pop(one)
        for head, capacity in out.items():
            del self.predecessors[head][one]
            if head == other:
                continue
            if other == source and head == sink:
                self.value += capacity
            # What returns to the source or leaves the sink is cut by no cut.
            elif other != sink and head != source:
                self._join(other, head, capacity)
            if head not in (source, sink):
                pending.append(head)
        for tail, capacity in into.items():
            del self.successors[tail][one]
            if tail == other:
                continue
            if other == sink and tail == source:
                self.value += capacity
            elif other != source and tail != sink:
                self._join(tail, other, capacity)
            if tail not in (source, sink):
                pending.append(tail)
        if other not in (source, sink):
            pending.append(other)

    def components(self) -> list[list[int]]:
        """Return the connected components of what is left, source and sink not counted as connections."""
        ends = (self.source, self.sink)
        seen = set(ends)
        found = []
        for start in self.successors:
            if start in seen:
                continue
            seen.add(start)
            component = [start]
            for vertex in component:
                for near in (*self.successors[vertex], *self.predecessors[vertex]):
                    if near not in seen:
                        seen.add(near)
                        component.append(near)
            found.append(component)
        return found


def _dinic(
    vertices: Sequence[int],
    successors: dict[int, dict[int, float]],
    predecessors: dict[int, dict[int, float]],
    source: int,
    sink: int,
) -> tuple[float, list[int]]:
    """Return the maximum flow through some vertices, and those that can still reach the sink."""
    number = {source: 0, sink: 1}
    for vertex in vertices:
        number[vertex] = len(number)
    ends: list[int] = []
    room: list[float] = []
    edges: list[list[int]] = [[] for _ in number]

    def join(tail: int, head: int, capacity: float) -> None:
        # An edge and its reverse are neighbours: each is the other's number with the last bit flipped.
        edges[tail].append(len(ends))
        ends.append(head)
        room.append(capacity)
        edges[head].append(len(ends))
        ends.append(tail)
        room.append(0)

    for vertex in vertices:
        if source in predecessors[vertex]:
            join(0, number[vertex], predecessors[vertex][source])
        for head, capacity in successors[vertex].items():
            join(number[vertex], number[head], capacity)

    flow: float = 0
    while True:
        level = _levels(edges, ends, room)
        if level[0] < 0:
            return flow, [vertex for vertex in vertices if level[number[vertex]] >= 0]
        flow += _blocking_flow(edges, ends, room, level)


def _levels(edges: list[list[int]], ends: list[int], room: list[float]) -> list[int]:
    """Return each vertex's distance to the sink in the residual graph, or -1."""
    level = [-1] * len(edges)
    level[1] = 0
    queue = [1]
    for vertex in queue:
        for edge in edges[vertex]:
            if room[edge ^ 1] > 0 and level[ends[edge]] < 0:
                level[ends[edge]] = level[vertex] + 1
                queue.append(ends[edge])
    return level


def _blocking_flow(edges: list[list[int]], ends: list[int], room: list[float], level: list[int]) -> float:
    """Fill all shortest paths from source to sink."""
    flow: float = 0
    tried = [0] * len(edges)
    path: list[int] = []
    vertex = 0
    while True:
        if vertex == 1:
            amount = min(room[edge] for edge in path)
            flow += amount
            full = 0
            for place in range(len(path) - 1, -1, -1):
                edge = path[place]
                room[edge] -= amount
                room[edge ^ 1] += amount
                if room[edge] == 0:
                    full = place
            vertex = ends[path[full] ^ 1]
            del path[full:]
            continue
        row = edges[vertex]
        place = tried[vertex]
        while place < len(row):
            edge = row[place]
            if room[edge] > 0 and level[ends[edge]] == level[vertex] - 1:
                break
            place += 1
        tried[vertex] = place
        if place < len(row) and level[vertex] > 0:
            path.append(row[place])
            vertex = ends[row[place]]
        elif vertex == 0:
            return flow
        else:
            level[vertex] = -1
            edge = path.pop()
            vertex = ends[edge ^ 1]
            tried[vertex] += 1
