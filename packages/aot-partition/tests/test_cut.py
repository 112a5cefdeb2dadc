"""The solver against all cuts of small networks, and against networkx on larger ones."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from aot_partition.mincut.cut import UnboundedError, minimum_cut

INFINITY = math.inf


def random_network(rng: random.Random, count: int, *, infinite: float = 0.3):
    """Return tails, heads and capacities; vertex 0 is the source and 1 the sink."""
    edges = []
    for _ in range(rng.randrange(count, 4 * count)):
        tail, head = rng.randrange(count), rng.randrange(count)
        capacity = INFINITY if rng.random() < infinite else rng.choice([0, 1, 1, 2, 3, 5, 8, 2**70])
        edges.append((tail, head, capacity))
    return [list(column) for column in zip(*edges, strict=True)]


def split_network(rng: random.Random, nodes: int):
    """Return a network as joint graphs make them: each node an edge, infinite edges between."""
    source, sink = 2 * nodes, 2 * nodes + 1
    edges = []
    for i in range(nodes):
        edges.append((2 * i, 2 * i + 1, rng.choice([0, 1, 2, 4, 4, 7, INFINITY])))
        for j in rng.sample(range(i), min(i, rng.randrange(3))):
            edges.append((2 * j + 1, 2 * i, INFINITY))
        if i < 3 or rng.random() < 0.2:
            edges.append((source, 2 * i, INFINITY if rng.random() < 0.7 else rng.randrange(6)))
        if rng.random() < 0.25 and i > 2:
            edges.append((2 * i + rng.randrange(2), sink, INFINITY))
    return 2 * nodes + 2, *[list(column) for column in zip(*edges, strict=True)], source, sink


def value_of(side, tails, heads, capacities):
    return sum(c for t, h, c in zip(tails, heads, capacities, strict=True) if not side[t] and side[h] and c)


def solve(count, tails, heads, capacities, source, sink):
    """Return the minimum cut, or None if there is none; then check what the error says."""
    try:
        return minimum_cut(count, tails, heads, capacities, source=source, sink=sink)
    except UnboundedError as error:
        path = error.path
    joined = {(t, h) for t, h, c in zip(tails, heads, capacities, strict=True) if c == INFINITY}
    assert (path[0], path[-1]) == (source, sink)
    assert set(itertools.pairwise(path)) <= joined
    return None


def test_small_networks_against_all_cuts(seed):
    rng = random.Random(seed)
    for _ in range(300):
        count = rng.randrange(2, 8)
        tails, heads, capacities = random_network(rng, count)
        sides = ([0, 1, *rest] for rest in itertools.product((0, 1), repeat=count - 2))
        best = min(value_of(side, tails, heads, capacities) for side in sides)
        cut = solve(count, tails, heads, capacities, 0, 1)
        if cut is None:
            assert best == INFINITY
        else:
            assert cut.value == best == value_of(cut.sink_side, tails, heads, capacities)
            assert not cut.sink_side[0] and cut.sink_side[1]


def agree_with_networkx(network):
    networkx = pytest.importorskip("networkx")
    count, tails, heads, capacities, source, sink = network
    graph = networkx.DiGraph()
    graph.add_nodes_from([source, sink])
    for tail, head, capacity in zip(tails, heads, capacities, strict=True):
        if tail != head:
            before = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            graph.add_edge(tail, head, capacity=before + capacity)
    cut = solve(count, tails, heads, capacities, source, sink)
    try:
        value, (_, below) = networkx.minimum_cut(graph, source, sink)
    except networkx.NetworkXUnbounded:
        assert cut is None
        return False
    assert cut is not None
    assert cut.value == value
    # Of several minimum cuts the same one: what is cut decides what is saved.
    mine = {(t, h) for t, h in zip(tails, heads, strict=True) if not cut.sink_side[t] and cut.sink_side[h]}
    theirs = {(t, h) for t, h in zip(tails, heads, strict=True) if t not in below and h in below}
    positive = {(t, h) for t, h, c in zip(tails, heads, capacities, strict=True) if c > 0}
    assert mine & positive == theirs & positive
    return True


def test_same_cut_as_networkx(seed):
    rng = random.Random(seed)
    bounded = sum(agree_with_networkx(split_network(rng, rng.randrange(2, 60))) for _ in range(200))
    assert 20 < bounded < 200, "the sample should hold bounded networks, and unbounded ones"
    for _ in range(100):
        count = rng.randrange(4, 14)
        agree_with_networkx((count, *random_network(rng, count, infinite=0.02), 0, 1))


@pytest.mark.sweep
def test_same_cut_as_networkx_on_many(seed):
    rng = random.Random(seed)
    bounded = 0
    for _ in range(6000):
        bounded += agree_with_networkx(split_network(rng, rng.randrange(2, 90)))
    assert bounded >= 2000
    for _ in range(2000):
        count = rng.randrange(3, 40)
        agree_with_networkx((count, *random_network(rng, count, infinite=0.05), 0, 1))


def test_of_two_equal_cuts_the_one_nearer_to_the_sink():
    # source -3-> 2 -3-> 3 -3-> sink
    cut = minimum_cut(4, [0, 2, 3], [2, 3, 1], [3, 3, 3], source=0, sink=1)
    assert cut.value == 3
    assert list(cut.sink_side) == [0, 1, 0, 0]


def test_a_tie_at_a_vertex_with_one_way_out():
    # All that can enter vertex 4 can leave it too: cutting before or after it costs the same.
    edges = [(0, 2, 4), (2, 4, 2), (0, 3, 1), (3, 4, 1), (4, 1, 3)]
    tails, heads, capacities = (list(column) for column in zip(*edges, strict=True))
    cut = minimum_cut(5, tails, heads, capacities, source=0, sink=1)
    assert cut.value == 3
    assert list(cut.sink_side) == [0, 1, 0, 0, 0]


def test_a_core_that_nothing_contracts_is_solved():
    # Two diamonds that share their middle: no vertex has a single predecessor or successor.
    edges = [(0, 2, 4), (0, 3, 4), (2, 4, 3), (2, 5, 2), (3, 4, 2), (3, 5, 3), (4, 1, 4), (5, 1, 4)]
    tails, heads, capacities = (list(column) for column in zip(*edges, strict=True))
    assert minimum_cut(6, tails, heads, capacities, source=0, sink=1).value == 8


def test_without_edges_nothing_is_cut():
    cut = minimum_cut(2, [], [], [], source=0, sink=1)
    assert cut.value == 0 and list(cut.sink_side) == [0, 1]
