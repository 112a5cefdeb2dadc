"""Regions: that they can be run, that there are no fewer possible, and that those kept pay."""

from __future__ import annotations

import collections

import pytest
import torch
from claimed import POINTWISE, RandomProgram, graph_of, targets
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from traced import trace

from aot_partition.nvprims import claim
from aot_partition.regions import find_regions, fuse_regions

aten = torch.ops.aten
WAYS = ({}, {"keep_all": True}, {"horizontal": False}, {"keep_all": True, "horizontal": False})


def eager(gm: fx.GraphModule):
    """Return what runs a region as it is."""
    return lambda inputs: gm(*inputs)


def fused(gm: fx.GraphModule, regions) -> fx.GraphModule:
    return fuse_regions(gm, {region: eager(region.graph_module(gm)) for region in regions})


def has_cycle(graph: fx.Graph, regions) -> bool:
    """Look for a cycle among regions and other nodes, along values, draws, and writes before and after reads."""
    unit = {node: region.name for region in regions for node in region.nodes}
    edges = collections.defaultdict(set)
    nodes = list(graph.nodes)

    def edge(one, other):
        edges[unit.get(one, one.name)].add(unit.get(other, other.name))

    for node in nodes:
        for source in node.all_input_nodes:
            edge(source, node)
    for i, node in enumerate(nodes):
        for later in nodes[i + 1 :]:
            if node.target is aten.rand_like.default and later.target is node.target:
                edge(node, later)
            for one, other in ((node, later), (later, node)):
                if one.target is aten.copy_.default and other.op == "call_function":
                    memory = one.args[0].meta["val"].untyped_storage()._cdata
                    touched = [
                        x.meta["val"].untyped_storage()._cdata for x in (*other.all_input_nodes, other)
                    ]
                    if memory in touched:
                        edge(node, later)
    state: dict[str, int] = {}
    for start in list(edges):
        pending = [(start, iter(edges[start]))]
        if state.setdefault(start, 1) == 2:
            continue
        while pending:
            name, rest = pending[-1]
            following = next((x for x in rest if x != name), None)
            if following is None:
                state[name] = 2
                pending.pop()
            elif state.get(following) == 1:
                return True
            elif following not in state:
                state[following] = 1
                pending.append((following, iter(edges[following])))
    return False


def check_program(seed: int) -> None:
    one = RandomProgram(seed)
    expected = one.run(one.gm)
    for how in WAYS:
        regions = find_regions(one.gm, one.claimed, **how)
        assert all(set(region.nodes) <= one.claimed for region in regions), (seed, how)
        assert not has_cycle(one.gm.graph, regions), (seed, how)
        torch.testing.assert_close(one.run(fused(one.gm, regions)), expected, rtol=0, atol=0, equal_nan=True)
    two = RandomProgram(seed, devices=2)
    for how in WAYS:
        regions = find_regions(two.gm, two.claimed, **how)
        assert not has_cycle(two.gm.graph, regions), (seed, how, "two devices")
        for region in regions:
            assert {node.meta["val"].device for node in region.nodes} == {region.device}, (seed, how)


@pytest.mark.parametrize("block", range(4))
def test_random_programs_compute_the_same(block, seed):
    for i in range(20):
        check_program(seed * 1000 + block * 20 + i)


@pytest.mark.sweep
@pytest.mark.parametrize("block", range(20))
def test_many_random_programs(block):
    for seed in range(block * 1000, (block + 1) * 1000):
        check_program(seed)


def layers(gm: fx.GraphModule, claimed) -> int:
    """Return how many regions a longest path needs: claimed nodes, unclaimed ones between them."""
    turns: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        if node.op != "output":
            before = max(
                (turns[x] + (x not in claimed and node in claimed) for x in node.all_input_nodes), default=0
            )
            turns[node] = max(before, int(node in claimed))
    return max(turns.values())


class Claimed(OperatorSupportBase):
    def __init__(self, nodes) -> None:
        self.nodes = nodes

    def is_node_supported(self, submodules, node) -> bool:
        return node in self.nodes


@pytest.mark.parametrize("size", [10, 40, 120])
def test_no_partition_has_fewer_regions(size, seed):
    for i in range(10):
        program = RandomProgram(seed * 100 + i, size=size)
        # torch's partitioner knows nothing of writes and of the order of draws.
        for node in program.gm.graph.nodes:
            if node.target in (aten.copy_.default, aten.rand_like.default):
                node.target = POINTWISE[0]
                node.args = (node.args[0], node.args[-1])
        regions = find_regions(program.gm, program.claimed, keep_all=True)
        assert len(regions) == layers(program.gm, program.claimed)
        theirs = CapabilityBasedPartitioner(
            program.gm, Claimed(program.claimed), allows_single_node_partition=True
        ).propose_partitions()
        assert len(regions) <= len(theirs)


def names(region) -> list[str]:
    return [node.name for node in region.nodes]


def found(function, *inputs, **how):
    gm = graph_of(function, *inputs)
    decisions = []
    regions = find_regions(gm, claim(gm), decisions=decisions, **how)
    return gm, regions, {decision.code: decision for decision in decisions}


def test_a_region_as_a_graph():
    def function(x, y, w):
        z = (x + y).sin()
        return z @ w, z

    gm, (region,), _ = found(function, *torch.rand(3, 4, 4))
    assert names(region) == ["add", "sin"]
    assert [node.name for node in region.inputs] == ["x_1", "y_1"]
    assert [node.name for node in region.outputs] == ["sin"]
    subgraph = region.graph_module(gm)
    x, y, w = torch.rand(3, 4, 4)
    (got,) = subgraph(x, y)
    torch.testing.assert_close(got, (x + y).sin())
    assert all("val" in node.meta for node in subgraph.graph.nodes)
    whole = fused(gm, [region])
    assert targets(whole)[0].startswith("<function in_a_list") and "aten.mm.default" in targets(whole)
    torch.testing.assert_close(whole(x, y, w), function(x, y, w))


def test_parts_go_with_what_they_are_parts_of():
    gm = graph_of(lambda x: torch.var_mean(x.sin(), 0), torch.rand(4, 4))
    nodes = {node.name: node for node in gm.graph.nodes}
    for claimed in (["sin", "var_mean"], ["sin", "var_mean", "getitem"]):
        (region,) = find_regions(gm, [nodes[name] for name in claimed])
        assert names(region) == ["sin", "var_mean", "getitem", "getitem_1"]
    assert find_regions(gm, [nodes["sin"], nodes["getitem"]]) == []


def test_what_stands_between_separates():
    _, regions, _ = found(
        lambda x, w: ((x.sin().cos() @ w).sin().cos() @ w).exp().neg(), *torch.rand(2, 4, 4)
    )
    assert [names(region) for region in regions] == [["sin", "cos"], ["sin_1", "cos_1"], ["exp", "neg"]]


def test_what_has_nothing_to_do_with_each_other():
    def function(x, y):
        return x.sin().cos(), y.exp().neg()

    _, regions, _ = found(function, *torch.rand(2, 4, 4))
    assert [len(region) for region in regions] == [4]
    _, regions, _ = found(function, *torch.rand(2, 4, 4), horizontal=False)
    assert [names(region) for region in regions] == [["sin", "cos"], ["exp", "neg"]]
    # Readers of the same input belong together.
    _, regions, _ = found(lambda x: (x.sin(), x.exp()), torch.rand(4, 4), horizontal=False)
    assert [names(region) for region in regions] == [["sin", "exp"]]


def test_a_region_that_only_moves_is_dropped():
    _, regions, decisions = found(lambda x: x.t().unsqueeze(0).expand(2, 4, 4), torch.rand(4, 4))
    assert regions == []
    assert decisions["move-only"].subject == "t, unsqueeze, expand"
    _, regions, _ = found(lambda x: x.t().unsqueeze(0), torch.rand(4, 4), keep_all=True)
    assert [len(region) for region in regions] == [2]


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: x.sin(), 0),
        (lambda x: x.t().unsqueeze(0).sin().squeeze(0), 0),
        (lambda x: x.sin().cos(), 2),
        (lambda x: torch.var_mean(x, 0), 3),
    ],
)
def test_a_region_of_one_operator_pays_only_where_it_says_so(function, kept):
    _, regions, decisions = found(function, torch.rand(4, 4))
    assert sum(map(len, regions)) == kept
    assert ("one-operator" in decisions) == (not kept)


def test_views_at_the_end_are_made_outside():
    gm, (region,), decisions = found(lambda x: x.sin().cos().t().unsqueeze(0), torch.rand(4, 4))
    assert names(region) == ["sin", "cos"]
    assert decisions["trailing-view"].subject == "t, unsqueeze"
    # A part of a split that is read inside keeps the split inside.
    _, (region,), _ = found(lambda x: [a.exp() for a in x.sin().cos().split(2)], torch.rand(4, 4))
    assert "split" in names(region)
    x = torch.rand(4, 4)
    result = fused(gm, find_regions(gm, claim(gm)))(x)
    assert result.stride() == x.sin().cos().t().unsqueeze(0).stride()


def test_two_devices_make_two_regions():
    def function(x, y):
        return x.sin().cos(), y.sin().cos()

    _, regions, _ = found(function, torch.rand(4, 4), torch.rand(4, 4, device="meta"))
    assert sorted((str(region.device), len(region)) for region in regions) == [("cpu", 2), ("meta", 2)]


def test_casts_of_parameters_wait_for_their_layer():
    def function(x, *weights):
        for weight in weights:
            x = (x @ (weight.double() * 2).float()).sin().cos()
        return x

    gm, regions, _ = found(function, *torch.rand(5, 4, 4))
    assert len(regions) == 5
    # The first region holds the first cast alone, and not those of the layers to come.
    assert [sum("_to_copy" in name for name in names(region)) for region in regions] == [2, 2, 2, 2, 0]
    weights = torch.rand(5, 4, 4)
    torch.testing.assert_close(fused(gm, regions)(*weights), function(*weights))


def test_what_takes_less_memory_early_stays_early():
    def function(x, w):
        big = x @ w
        small = big.sin().sum(1)
        for _ in range(3):
            x = (x @ x).cos().sin()
        return x * small

    _, regions, _ = found(function, torch.rand(4, 4), torch.rand(4, 4))
    (home,) = [region for region in regions if "sum_1" in names(region)]
    assert home is regions[0]


def test_a_write_stays_behind_what_reads_what_it_overwrites():
    def function(x, y):
        before = x.sin()
        aten.copy_.default(x, y.cos().exp())
        return before.exp() @ y, x.t()

    gm = graph_of(function, *torch.rand(2, 4, 4))
    regions = find_regions(gm, claim(gm))
    x, y = torch.rand(2, 4, 4)
    x2 = x.clone()
    torch.testing.assert_close(fused(gm, regions)(x, y), function(x2, y))
    torch.testing.assert_close(x, x2)


def test_inputs_of_a_region_die_in_it():
    """What a region alone reads is gone before it returns, if it empties its list."""
    gm, (region,), _ = found(lambda x, w: (x @ w).sin().cos(), *torch.rand(2, 4, 4))
    alive = []

    def run(inputs):
        import weakref

        watched = weakref.ref(inputs[0])
        made = inputs[0].sin()
        inputs.clear()
        alive.append(watched() is not None)
        return [made.cos()]

    fuse_regions(gm, {region: run})(*torch.rand(2, 4, 4))
    assert alive == [False]


def test_time_is_linear():
    """Counted in calls of Python functions, not in seconds: 8 times the nodes make less than 12 times the calls."""
    import cProfile
    import pstats

    def calls(count):
        graph = fx.Graph()
        node = graph.placeholder("x")
        value = torch.empty(2, 2, device="meta")
        node.meta["val"] = value
        for i in range(count):
            node = graph.call_function(aten.mm.default if i % 7 == 6 else POINTWISE[i % 3], (node, node))
            node.meta["val"] = value
        graph.output(node)
        gm = fx.GraphModule(torch.nn.Module(), graph)
        claimed = [node for node in graph.nodes if node.target in POINTWISE]
        profile = cProfile.Profile()
        profile.runcall(find_regions, gm, claimed)
        return pstats.Stats(profile).total_calls

    assert calls(4000) < 12 * calls(500)


def test_the_joint_graph_of_a_step():
    traced = trace(
        lambda x, w: torch.nn.functional.layer_norm((x @ w).relu(), (4,)).sum(),
        torch.rand(4, 4, requires_grad=True),
        torch.rand(4, 4, requires_grad=True),
    )
    regions = find_regions(traced.module, claim(traced.module))
    assert not has_cycle(traced.module.graph, regions)
