"""The graph in which each region is one call."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.regions.order import order_constraints
from aot_partition.regions.region import Region

__all__ = ["RegionCall", "fuse_regions"]


class RegionCall(torch.nn.Module):
    """What a call of a region in a graph calls.

    Args:
        name: The region's name.
        run: Takes a list of the region's inputs, and may empty it.
    """

    def __init__(self, name: str, run: Callable[[list[Any]], Sequence[Any]]) -> None:
        super().__init__()
        self.name = name
        self.run = run

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        """Run the region. Not by way of ``Module.__call__``, which looks for hooks for a microsecond."""
        return self.run(inputs)


def in_a_list(*values: Any) -> list[Any]:
    """Return the values as a list."""
    return list(values)


def fuse_regions(
    graph_module: fx.GraphModule, calls: Mapping[Region, Callable[[list[Any]], Sequence[Any]]]
) -> fx.GraphModule:
    """Make of a graph another in which each region is one call.

    Before::

        y = mul(a, b)
        z = mm(y, c)
        w = gelu(y)

    After::

        inputs = [a, b]             # the only reference to what nobody else reads, so that a region can free it
        region_0 = self.region_0(inputs)
        y, w = region_0[0], region_0[1]
        z = mm(y, c)

    Args:
        graph_module: The graph. Not changed.
        calls: Each region of it, and what runs it.

    Returns:
        A graph module whose nodes keep names and metadata, in an order close to the original's.
    """
    root = torch.nn.Module()
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for unit in _in_order(graph_module.graph, list(calls)):
        if isinstance(unit, Region):
            setattr(root, unit.name, RegionCall(unit.name, calls[unit]))
            _add_call(graph, unit, env)
        else:
            env[unit] = graph.node_copy(unit, env.__getitem__)
            _copy_attribute(unit, graph_module, root)
    fused = fx.GraphModule(root, graph, class_name=type(graph_module).__name__)
    fused.meta = dict(graph_module.meta)
    return fused


def _add_call(graph: fx.Graph, region: Region, env: dict[fx.Node, fx.Node]) -> None:
    inputs = graph.call_function(in_a_list, tuple(env[node] for node in region.inputs))
    call = graph.call_module(region.name, (inputs,))
    call.meta["val"] = [node.meta["val"] for node in region.outputs]
    for place, node in enumerate(region.outputs):
        part = graph.create_node("call_function", operator.getitem, (call, place), name=node.name)
        part.meta = dict(node.meta)
        env[node] = part


def _copy_attribute(node: fx.Node, source: fx.GraphModule, root: torch.nn.Module) -> None:
    if node.op in ("get_attr", "call_module"):
        _compat.copy_attribute(source, root, str(node.target))


def _in_order(graph: fx.Graph, regions: Sequence[Region]) -> list[Region | fx.Node]:
    """Return regions and the other nodes in an order in which they can run: the original's wherever it is one."""
    region_of = {node: region for region in regions for node in region.nodes}
    before = order_constraints(graph)
    place: dict[Region | fx.Node, int] = {}
    waits: dict[Region | fx.Node, int] = {}
    then: dict[Region | fx.Node, list[Region | fx.Node]] = {}
    units: list[Region | fx.Node] = []
    for i, node in enumerate(graph.nodes):
        unit: Region | fx.Node = region_of.get(node, node)
        if unit not in place:
            place[unit], waits[unit], then[unit] = i, 0, []
            units.append(unit)
    for node in graph.nodes:
        unit = region_of.get(node, node)
        for earlier in (*node.all_input_nodes, *before.get(node, ())):
            source: Region | fx.Node = region_of.get(earlier, earlier)
            if source is not unit:
                then[source].append(unit)
                waits[unit] += 1
    ready = [place[unit] for unit in units if not waits[unit]]
    at = {i: unit for unit, i in place.items()}
    order: list[Region | fx.Node] = []
    while ready:
        unit = at[heapq.heappop(ready)]
        order.append(unit)
        for later in then[unit]:
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, place[later])
    assert len(order) == len(units), "regions made of phases can't form a cycle"
    return order
