"""Regions that another compiler has made, called from TorchScript."""

from __future__ import annotations

import gc
import operator

import pytest
import torch
from torch import fx
from tracing import assert_same, aten, traced

from aot_ts_fusion import (
    Fusion,
    FusionResultError,
    UnknownFusionError,
    call_out_regions,
    num_fusions,
    ts_compile,
)


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    before = num_fusions()
    yield
    gc.collect()
    assert num_fusions() == before


def run_as_it_is(gm, example_inputs):
    return lambda inputs: list(gm(*inputs))


def nodes_named(gm, *names):
    return [node for node in gm.graph.nodes if node.name in names]


def with_values(gm, *inputs):
    """Give each node the value that it has for some inputs."""

    class Noting(fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            node.meta["val"] = result
            return result

    Noting(gm).run(*inputs)
    return gm


def f(x, y):
    a = (x * 2).relu()
    b = a @ y
    return (b + a).sigmoid(), a.sum()


@pytest.fixture
def graph():
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    return with_values(traced(f, x, y), x, y)


def test_a_region_is_called_from_torchscript(graph):
    seen = []

    def compile_region(gm, example_inputs):
        seen.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
        assert [each.shape for each in example_inputs] == [(3, 3)]
        return run_as_it_is(gm, example_inputs)

    called, decisions = call_out_regions(graph, [nodes_named(graph, "mul", "relu")], compile_region)
    program = ts_compile(called, [torch.ones(3, 3)] * 2)
    del called
    assert seen == [[aten.mul.Tensor, aten.relu.default]]
    assert [(each.action, each.code) for each in decisions] == [("fuse", "region")]
    assert "aot_ts_fusion::run_fusion" in str(program.scripts[0].graph) and program.cut_out == 0
    for _ in range(3):
        x, y = torch.randn(3, 3), torch.randn(3, 3)
        assert_same(program([x, y]), f(x, y))


def test_several_regions_in_any_order(graph):
    regions = [
        nodes_named(graph, "add", "sigmoid"),
        nodes_named(graph, "sum_1"),
        nodes_named(graph, "mul", "relu"),
    ]
    called, decisions = call_out_regions(graph, regions, run_as_it_is)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert_same(ts_compile(called, [x, y])([x, y]), f(x, y))
    assert {each.code for each in decisions} == {"region"}


def test_a_region_around_other_operations(graph):
    """relu and sum are one region, with mm, add and sigmoid in between: the region moves before them."""
    called, _ = call_out_regions(graph, [nodes_named(graph, "relu", "sum_1")], run_as_it_is)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert_same(ts_compile(called, [x, y])([x, y]), f(x, y))
    assert len(called.graph.find_nodes(op="call_function", target=operator.getitem)) == 2


def test_a_region_that_a_path_leaves_and_enters_stays_as_it_is(graph):
    called, (decision,) = call_out_regions(graph, [nodes_named(graph, "relu", "add")], run_as_it_is)
    assert (decision.action, decision.code) == ("skip", "region-in-a-cycle")
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert_same(ts_compile(called, [x, y])([x, y]), f(x, y))


def test_two_regions_that_would_wait_for_each_other():
    x = torch.randn(3)
    gm = with_values(traced(lambda x: (x.sin().exp(), x.cos().tan()), x), x)
    first, second = nodes_named(gm, "sin", "tan"), nodes_named(gm, "cos", "exp")
    called, decisions = call_out_regions(gm, [first, second], run_as_it_is)
    assert [each.code for each in decisions] == ["region", "region-in-a-cycle"]
    assert_same(ts_compile(called, [x])([x]), gm(x))


def test_writes_stay_in_the_graph_and_in_order():
    def g(x, y):
        before = x * 2
        x.add_(1)
        after = x * 2
        y.copy_(before + after)
        return after.relu()

    x, y = torch.randn(3), torch.zeros(3)
    gm = with_values(traced(g, x.clone(), y.clone()), x.clone(), y.clone())
    across = nodes_named(gm, "mul", "mul_1")
    with_write = nodes_named(gm, "add", "copy_")
    called, decisions = call_out_regions(gm, [across, with_write], run_as_it_is)
    assert [each.code for each in decisions] == ["region-in-a-cycle", "region"]
    mine, theirs = (x.clone(), y.clone()), (x.clone(), y.clone())
    assert_same(ts_compile(called, mine)(list(mine)), g(*theirs))
    assert_same(mine, theirs)


def test_random_numbers_are_drawn_in_order():
    def g(x):
        a = torch.rand_like(x) + 1
        b = torch.rand_like(x) * 3
        return a, b, torch.rand_like(x)

    x = torch.randn(3)
    gm = with_values(traced(g, x), x)
    regions = [nodes_named(gm, "rand_like_1", "mul"), nodes_named(gm, "add")]
    called, _ = call_out_regions(gm, regions, run_as_it_is)
    program = ts_compile(called, [x])
    torch.manual_seed(5)
    got = program([x])
    torch.manual_seed(5)
    assert_same(got, g(x))


def test_numbers_stay_outside():
    gm = traced(lambda x: (x.reshape(-1) * x.shape[0]).relu(), torch.randn(3, 2), symbolic=True)
    called, (decision,) = call_out_regions(gm, [nodes_named(gm, "mul", "relu")], run_as_it_is)
    assert decision.code in ("region-of-numbers", "region")
    x = torch.randn(5, 2)
    assert_same(ts_compile(called, [x])([x]), gm(x))


def test_a_region_that_does_not_compile(graph):
    def compile_region(gm, example_inputs):
        raise NotImplementedError("no such thing")

    called, (decision,) = call_out_regions(graph, [nodes_named(graph, "mul", "relu")], compile_region)
    assert (decision.action, decision.code) == ("skip", "region-not-compiled")
    assert "NotImplementedError: no such thing" in decision.detail
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert_same(ts_compile(called, [x, y])([x, y]), f(x, y))
    with pytest.raises(NotImplementedError):
        call_out_regions(graph, [nodes_named(graph, "mul", "relu")], compile_region, strict=True)


def test_entries_die_with_the_compiled_function(graph):
    before = num_fusions()
    alive = []
    for i in range(1000):
        called, _ = call_out_regions(graph, [nodes_named(graph, "mul", "relu")], run_as_it_is)
        program = ts_compile(called, [torch.ones(3, 3)] * 2)
        if i % 100 == 0:
            alive.append(program)
    del called, program
    gc.collect()
    assert num_fusions() == before + len(alive)
    alive.clear()
    assert num_fusions() == before


def test_a_wrong_number_of_results_is_an_error(graph):
    def compile_region(gm, example_inputs):
        return lambda inputs: [*inputs, *inputs]

    called, _ = call_out_regions(graph, [nodes_named(graph, "mul", "relu")], compile_region)
    program = ts_compile(called, [torch.ones(3, 3)] * 2)
    with pytest.raises(FusionResultError, match="region_0 returned 2 values, expected 1"):
        program([torch.ones(3, 3), torch.ones(3, 3)])


def test_what_a_fusion_raises_comes_out_as_it_is(graph):
    def compile_region(gm, example_inputs):
        def run(inputs):
            raise ZeroDivisionError("in a kernel")

        return run

    called, _ = call_out_regions(graph, [nodes_named(graph, "mul", "relu")], compile_region)
    program = ts_compile(called, [torch.ones(3, 3)] * 2)
    with pytest.raises(ZeroDivisionError, match="in a kernel"):
        program([torch.ones(3, 3), torch.ones(3, 3)])


def test_a_fusion_that_is_gone():
    fusion = Fusion(lambda inputs: inputs, 1, "of a test")
    graph = fx.Graph()
    x = graph.placeholder("x")
    outputs = graph.call_function(torch.ops.aot_ts_fusion.run_fusion.default, (fusion.number, [x]))
    graph.output(graph.call_function(operator.getitem, (outputs, 0)))
    gm = fx.GraphModule({}, graph)
    assert torch.equal(ts_compile(gm, [torch.ones(2)])([torch.ones(2)]), torch.ones(2))
    del fusion
    gc.collect()
    with pytest.raises(UnknownFusionError, match="is gone"):
        ts_compile(gm, [torch.ones(2)])
    with pytest.raises(UnknownFusionError, match="There is no fusion"):
        gm(torch.ones(2))
