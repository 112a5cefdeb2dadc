"""A view of given geometry, written as the operations that a person would use.

::

    base of size (24,), view of size (3, 2), strides (1, 4), offset 1
        ──>  base[1:9].view(2, 4)[:, 0:3].permute(1, 0)

``as_strided`` can make any view, but functionalization refuses some writes behind one, and a compiler knows
nothing about it. So it is kept for what slices, shapes and permutations can't say.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from aot_core.aliasing.memory import Geometry, is_contiguous

__all__ = ["insert_view"]


def insert_view(graph: fx.Graph, base: fx.Node, base_geometry: Geometry, view: Geometry) -> fx.Node:
    """Add nodes that make a view of a base, and return the last.

    Args:
        graph: Where to add them.
        base: The tensor to view.
        base_geometry: Its size, strides and offset.
        view: Size, strides and offset of the view, in the same memory.
    """
    if view == base_geometry:
        return graph.call_method("view", (base, list(view[0])))
    size, stride, offset = view
    # A shape says nothing of the stride of a dimension of size 1, so those are put in last.
    kept = [dim for dim, n in enumerate(size) if n != 1] or list(range(len(size)))[-1:]
    inner = tuple(size[dim] for dim in kept), tuple(stride[dim] for dim in kept), offset
    order = _nesting(base_geometry, inner)
    added = _unsqueezed(view, kept)
    if order is None or added is None:
        return graph.call_function(torch.as_strided, (base, size, stride, offset))
    size, stride, offset = inner
    # Each dimension is cut out of the last, which is then split into its steps and what lies within one.
    node = base if len(base_geometry[0]) == 1 else graph.call_method("view", (base, [-1]))
    start, made = offset - base_geometry[2], []
    for depth, dim in enumerate(order):
        n, step = size[dim], stride[dim]
        innermost = depth == len(order) - 1
        stop = start + ((n - 1) * step + 1 if innermost else n * step)
        node = graph.call_function(
            torch.ops.aten.slice.Tensor, (node, depth, start, stop, step if innermost else 1)
        )
        made.append(n)
        if not innermost:
            node = graph.call_method("view", (node, [*made, step]))
        start = 0
    if order != sorted(order):
        node = graph.call_method("permute", (node, [order.index(dim) for dim in range(len(order))]))
    for dim in added:
        node = graph.call_method("unsqueeze", (node, dim))
    return node


def _unsqueezed(view: Geometry, kept: list[int]) -> list[int] | None:
    """Return where to unsqueeze, one after the other, what has the kept dimensions of a view.

    None if that makes other strides.
    """
    size, stride, _ = view
    added = []
    for dim in reversed(range(len(size))):
        if dim not in kept:
            last = dim == len(size) - 1
            if stride[dim] != (1 if last else size[dim + 1] * stride[dim + 1]):
                return None
            added.append(sum(other < dim for other in kept))
    return added


def _nesting(base: Geometry, view: Geometry) -> list[int] | None:
    """Return the dimensions of a view from the widest step to the narrowest, if each lies within a step of the last.

    None if they don't nest, or if steps would reach beyond the base.
    """
    size, stride, offset = view
    if not (is_contiguous(base) and size and all(size) and all(stride) and offset >= base[2]):
        return None
    order = sorted(range(len(size)), key=lambda dim: (-stride[dim], -size[dim]))
    room = math.prod(base[0]) - (offset - base[2])
    for depth, dim in enumerate(order):
        innermost = depth == len(order) - 1
        if (size[dim] - 1) * stride[dim] + 1 > room or (not innermost and size[dim] * stride[dim] > room):
            return None
        room = stride[dim]
    return order
