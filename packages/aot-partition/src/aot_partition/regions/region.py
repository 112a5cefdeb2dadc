"""A region: nodes of a graph that one executor computes at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["Region", "make_region"]


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """Nodes that can be run at once: no path leads out of them and back in.

    Attributes:
        name: ``"region_0"``, unique in its graph.
        nodes: Its nodes, in the order of the graph.
        inputs: What its nodes read and the region does not compute: tensors, and symbolic numbers.
        outputs: Which of its nodes others read, each a tensor. A write to an input of the graph (``copy_``) is
            an effect, and none of them.
        device: Where its results are.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    device: torch.device

    def __len__(self) -> int:
        return len(self.nodes)

    def graph_module(self, root: fx.GraphModule) -> fx.GraphModule:
        """Return the region as a graph of its own, with the names and metadata of the nodes.

        ::

            region(inputs) -> [outputs]

        Args:
            root: The module of the graph that it is a region of.
        """
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        for node in self.inputs:
            env[node] = graph.placeholder(node.name)
            env[node].meta = dict(node.meta)
        for node in self.nodes:
            env[node] = graph.node_copy(node, env.__getitem__)
        result = graph.output([env[node] for node in self.outputs])
        result.meta["val"] = [node.meta["val"] for node in self.outputs]
        return _compat.make_graph_module(root, graph)


def make_region(name: str, nodes: Sequence[fx.Node], device: torch.device) -> Region:
    """Make a region of nodes that are in graph order."""
    inside = set(nodes)
    inputs: dict[fx.Node, None] = {}
    for node in nodes:
        inputs.update((argument, None) for argument in node.all_input_nodes if argument not in inside)
    return Region(name, tuple(nodes), tuple(inputs), tuple(_read_elsewhere(nodes, inside)), device)


def _read_elsewhere(nodes: Iterable[fx.Node], inside: set[fx.Node]) -> Iterable[fx.Node]:
    return (node for node in nodes if any(user not in inside for user in node.users))
