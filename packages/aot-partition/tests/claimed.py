"""Graphs for the tests of claims, regions and executors."""

from __future__ import annotations

import random

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aot_partition.nvprims import nvprims_decompositions

aten = torch.ops.aten


def graph_of(function, *inputs, decompositions=None, mode="fake") -> fx.GraphModule:
    """Trace a function of tensors to ATen operators."""
    table = nvprims_decompositions() if decompositions is None else decompositions
    return make_fx(function, decomposition_table=table, tracing_mode=mode)(*inputs)


def only(gm: fx.GraphModule, target) -> fx.Node:
    """Return the one node that calls an operator."""
    (node,) = calls(gm, target)
    return node


def calls(gm: fx.GraphModule, target) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.target is target]


def targets(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


POINTWISE = (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor)


class RandomProgram:
    """A random graph of 2x2 matrices, with writes to its inputs, views of them and random numbers.

    Attributes:
        gm: The graph.
        claimed: Some of its nodes.
        inputs: How many inputs it has.
    """

    def __init__(self, seed: int, *, devices: int = 1, size: int = 40) -> None:
        draw = random.Random(seed)
        graph = fx.Graph()
        kinds = [torch.device("cpu"), torch.device("meta")][:devices]
        self.inputs = draw.randint(1, 3)
        values: dict[fx.Node, torch.Tensor] = {}
        nodes: list[fx.Node] = []
        for i in range(self.inputs):
            node = graph.placeholder(f"x{i}")
            values[node] = torch.empty(2, 2, device=draw.choice(kinds))
            nodes.append(node)
        given = list(nodes)
        reach = draw.choice([2, 4, 8, 30])
        odds = draw.random()
        self.claimed: set[fx.Node] = set()
        for _ in range(draw.randint(5, size)):
            one, other = draw.choice(nodes[-reach:]), draw.choice(nodes[-reach:])
            what = draw.random()
            if what < 0.06:
                node = graph.call_function(aten.rand_like.default, (one,))
            elif what < 0.1 and _memory(values[written := draw.choice(given)]) != _memory(values[one]):
                node = graph.call_function(aten.copy_.default, (written, one))
                values[node] = values[written]
            elif what < 0.2:
                node = graph.call_function(aten.t.default, (one,))
                values[node] = values[one].t()
            elif what < 0.25:
                node = graph.call_function(aten.mm.default, (one, other))
            else:
                node = graph.call_function(draw.choice(POINTWISE), (one, other))
            values.setdefault(node, torch.empty(2, 2, device=draw.choice(kinds)))
            nodes.append(node)
            if draw.random() < odds:
                self.claimed.add(node)
        for node in nodes:
            node.meta["val"] = values[node]
        ends = [node for node in nodes if not node.users and node.target is not aten.copy_.default]
        graph.output(ends)
        self.gm = fx.GraphModule(torch.nn.Module(), graph)

    def run(self, gm: fx.GraphModule, seed: int = 0) -> list[torch.Tensor]:
        """Return what a graph returns, what it leaves in its inputs, and the next random number."""
        torch.manual_seed(seed)
        given = [torch.rand(2, 2) for _ in range(self.inputs)]
        returned = gm(*given)
        # A view of an input shows what is written later; where it is looked at is the same for all graphs.
        return [*(x.clone() for x in returned), *given, torch.rand(1)]
