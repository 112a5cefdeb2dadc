"""Views of which an operator makes several at once, made one by one where a graph returns them.

Before::

    def graph(x):
        parts = torch.chunk(x, 2)
        return parts[0]

After::

    def graph(x):
        return torch.narrow(x, 0, 0, 4)

AOTAutograd returns the parts of a chunk as tensors of their own where they require gradients, on the ground
that autograd lets nobody write to them (torch 2.10 to 2.13). But writes to ``x`` are seen through them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aot_core.graph_copy import copy_graph

__all__ = ["split_returned_views"]

_PARTING = ("chunk", "split", "split_with_sizes", "tensor_split", "unbind")


def split_returned_views(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that returns no part of a multi-output view as such; the given one, if it does not.

    Only looks at graphs whose nodes carry fake tensors, as Dynamo's do.
    """
    found = {node.name for node in _returned_parts(gm.graph) if _dimension(node) is not None}
    if not found:
        return gm
    copied = copy_graph(gm)
    for node in list(copied.graph.nodes):
        if node.name in found:
            with copied.graph.inserting_before(node):
                single = _alone(node)
            single.meta = dict(node.meta)
            node.replace_all_uses_with(single)
            copied.graph.erase_node(node)
    copied.recompile()
    return copied


def _returned_parts(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the parts of multi-output views that an output is, or is computed from alone."""
    for node in graph.output_node().all_input_nodes:
        while node.op in ("call_function", "call_method"):
            if node.target is operator.getitem and _parts(node.args[0]):
                yield node
            if len(node.all_input_nodes) != 1:
                break
            node = node.all_input_nodes[0]


def _parts(node: Any) -> bool:
    called = isinstance(node, fx.Node) and node.op in ("call_function", "call_method")
    return called and _name(node) in _PARTING


def _dimension(part: fx.Node) -> int | None:
    """Return the dimension that a part is cut out of, or None if the graph does not tell."""
    parting: Any = part.args[0]
    siblings = parting.meta.get("example_value")
    whole = parting.all_input_nodes[0].meta.get("example_value")
    index = part.args[1]
    if not (
        isinstance(whole, torch.Tensor) and isinstance(siblings, (tuple, list)) and isinstance(index, int)
    ):
        return None
    position = len(parting.args) - 1
    dim = parting.kwargs.get("dim", parting.args[-1] if position >= _DIM_AT.get(_name(parting), 2) else 0)
    return dim if isinstance(dim, int) else None


def _alone(part: fx.Node) -> fx.Node:
    """Add what makes a part by itself."""
    parting: Any = part.args[0]
    graph, whole, dim = part.graph, parting.args[0], _dimension(part)
    siblings = parting.meta["example_value"]
    index: Any = part.args[1]
    index %= len(siblings)
    if _name(parting) == "unbind":
        return graph.call_function(torch.select, (whole, dim, index))

    def length(i: int) -> Any:
        known = siblings[i].size(dim)
        if isinstance(known, int):
            return known
        # Symbolic: read off the part, of which that is left.
        return graph.call_method("size", (graph.call_function(operator.getitem, (parting, i)), dim))

    start: Any = 0
    for i in range(index):
        start = graph.call_function(operator.add, (start, length(i)))
    return graph.call_function(torch.narrow, (whole, dim, start, length(index)))


_DIM_AT = {"unbind": 1}
"""Position of the dimension among the arguments, the tensor being 0; elsewhere 2."""


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
