"""A view of given geometry, written as the operations that a person would use.

::

    base of size (8,), view of size (2, 3), strides (1, 2), offset 1
        ──>  base[1:7].view(3, 2).permute(1, 0)

``as_strided`` can make any view, but functionalization refuses some writes behind one, and a compiler knows
nothing about it. So it is kept for what slices, shapes and permutations can't say.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from aot_core.aliasing.effects import Geometry

__all__ = ["insert_view", "is_contiguous"]


def insert_view(graph: fx.Graph, base: fx.Node, base_geometry: Geometry, view: Geometry) -> fx.Node:
    """Add nodes that make a view of a base, and return the last.

    Args:
        graph: Where to add them.
        base: The tensor to view.
        base_geometry: Its size, strides and offset.
        view: Size, strides and offset of the view, in the same memory.
    """
    base_size, _, base_offset = base_geometry
    size, stride, offset = view
    if view == base_geometry:
        return graph.call_method("view", (base, list(size)))
    simple = is_contiguous(base_geometry) and all(size) and offset >= base_offset
    if not simple:
        return graph.call_function(torch.as_strided, (base, size, stride, offset))
    flat = base if len(base_size) == 1 else graph.call_method("view", (base, [-1]))
    start = offset - base_offset
    if len(size) == 1:
        step = max(stride[0], 1)
        if stride[0] > 0 or size[0] == 1:
            return _slice(graph, flat, start, start + (size[0] - 1) * step + 1, step)
    order = sorted(range(len(size)), key=lambda d: (-stride[d], size[d]))
    sizes = [size[d] for d in order]
    if not is_contiguous((tuple(sizes), tuple(stride[d] for d in order), 0)):
        return graph.call_function(torch.as_strided, (base, size, stride, offset))
    dense = graph.call_method("view", (_slice(graph, flat, start, start + math.prod(sizes), 1), sizes))
    if order == sorted(order):
        return dense
    return graph.call_method("permute", (dense, [order.index(d) for d in range(len(size))]))


def _slice(graph: fx.Graph, flat: fx.Node, start: int, stop: int, step: int) -> fx.Node:
    return graph.call_function(torch.ops.aten.slice.Tensor, (flat, 0, start, stop, step))


def is_contiguous(geometry: Geometry) -> bool:
    """Tell whether elements follow each other without gaps, the last dimension fastest."""
    size, stride, _ = geometry
    expected = 1
    for n, s in zip(reversed(size), reversed(stride), strict=True):
        if n != 1 and s != expected:
            return False
        expected *= n
    return True
