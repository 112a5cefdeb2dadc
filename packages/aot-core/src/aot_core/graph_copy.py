"""Copies of a graph with something written into them. The graph that was handed over is never changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aot_core import _compat

__all__ = ["copy_graph"]


def copy_graph(
    gm: fx.GraphModule,
    *,
    inputs: Callable[[fx.Graph], dict[fx.Node, Any]] | None = None,
    around: Callable[[fx.Graph, fx.Node | None], None] | None = None,
    outputs: Callable[[Any], Any] | None = None,
) -> fx.GraphModule:
    """Return a graph with the same operations, attributes and notes.

    Args:
        gm: The graph.
        inputs: Creates the placeholders of the copy, and returns what stands for each of the original's: a
            node, or a structure of nodes. By default they are copied.
        around: Called with the copied operations in place and the output not yet: gets the copy and its first
            operation, to add nodes before and after.
        outputs: Gets what the graph returns, and returns what the copy shall return.
    """
    graph = fx.Graph()
    renamed: dict[fx.Node, Any] = {} if inputs is None else inputs(graph)
    given = set(renamed)
    result = graph.graph_copy(gm.graph, renamed)
    for node, copy in renamed.items():
        if node not in given:
            _compat.copy_dynamo_notes(node, copy)
    if around is not None:
        around(graph, next((node for node in graph.nodes if node.op != "placeholder"), None))
    output = graph.output(result if outputs is None else outputs(result))
    output.meta = dict(gm.graph.output_node().meta)
    copied = fx.GraphModule(gm, graph)
    copied.meta = dict(gm.meta)
    if inputs is None:
        # Dynamo's notes on the graph, such as the sources of parameters. They count on its placeholders.
        for name, value in gm.__dict__.items():
            copied.__dict__.setdefault(name, value)
    return copied
