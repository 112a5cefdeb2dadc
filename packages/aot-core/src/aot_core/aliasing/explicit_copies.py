"""Copies that an operation makes since the strides don't allow a view, made whatever the strides.

Before, called with an ``x`` whose elements don't lie side by side::

    def graph(x):
        x.add_(1)
        return x.reshape(-1)

After::

    def graph(x):
        x.add_(1)
        return x.clone(memory_format=torch.contiguous_format).reshape(-1)

What AOTAutograd has in the place of a written input has strides of its own. A ``reshape`` of it may be a view,
and what is then written to that would be written to the input (torch 2.10 to 2.13, silently).
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from aot_core.graph_copy import copy_graph

__all__ = ["make_copies_explicit"]


def make_copies_explicit(gm: fx.GraphModule, names: Collection[str]) -> fx.GraphModule:
    """Return a graph that copies before each of these nodes what the node takes first."""
    copied = copy_graph(gm)
    for node in list(copied.graph.nodes):
        if node.name in names:
            with copied.graph.inserting_before(node):
                copy = copied.graph.call_method(
                    "clone", (node.args[0],), {"memory_format": torch.contiguous_format}
                )
            node.args = (copy, *node.args[1:])
    copied.recompile()
    return copied
