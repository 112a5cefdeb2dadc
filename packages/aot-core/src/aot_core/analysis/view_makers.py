"""What the views in a traced graph are views of, and copies in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from aot_core import _compat

if TYPE_CHECKING:
    from torch import fx

__all__ = ["add_copy", "find_makers"]


def find_makers(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return for each node the one that made the memory in which its value lies: of a view's, what it is a view of.

    The operators tell. The fake tensors on the nodes do not, once a pass has taken a copy out between two of them.

    Args:
        graph: Of ATen operators.
    """
    makers: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        viewed = _compat.viewed_by(node)
        makers[node] = node if viewed is None else makers[viewed]
    return makers


def add_copy(value: fx.Node) -> fx.Node:
    """Add a copy of a tensor to its graph, right behind it, with its notes and a fake tensor of its own."""
    clone = torch.ops.aten.clone.default
    with value.graph.inserting_after(value):
        copy = value.graph.call_function(clone, (value,))
    copy.meta = dict(value.meta)
    with _compat.fake_mode_of(value.meta["val"]):
        copy.meta["val"] = clone(value.meta["val"])
    return copy
