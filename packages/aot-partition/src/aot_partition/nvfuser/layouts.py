"""What a definition says about an input's memory, and which tensors it is then right for.

nvFuser is told, per dimension, whether it is of size 1, and whether it is contiguous with the next one further in;
sizes are left open, so that one definition serves all sizes. A dimension that was expanded, with stride 0 and a size
other than 1, is never called contiguous (NVIDIA/Fuser#806: the result is silently wrong).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["Layout", "layout_class", "layout_of", "memory_order"]


class Layout(NamedTuple):
    """Arguments of nvFuser's ``define_tensor``.

    Args:
        shape: 1 for a dimension of size 1, and -1 for all others.
        contiguity: From the outermost to the innermost dimension in memory: whether a step of it is as long as all
            that lies further in. None where a step has no meaning: size 1, or stride 0.
        stride_order: Per dimension its place in memory, 0 for the innermost; None if the last one is the innermost,
            and so on outwards.
    """

    shape: tuple[int, ...]
    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...] | None


def memory_order(sizes: Sequence[Any], strides: Sequence[Any]) -> list[int]:
    """Return the dimensions from the outermost in memory to the innermost.

    A dimension of size 1 or stride 0 says nothing about the order, and stays in front of the one it precedes.
    """
    order: list[int] = []
    for i in reversed(range(len(sizes))):
        place = 0
        if not _steps_nowhere(sizes[i], strides[i]):
            for at, other in enumerate(order):
                if _steps_nowhere(sizes[other], strides[other]):
                    continue
                if strides[i] < strides[other]:
                    place = at + 1
        order.insert(place, i)
    return order


def layout_of(sizes: Sequence[Any], strides: Sequence[Any]) -> Layout:
    """Describe a tensor's memory.

    Args:
        sizes: May be symbolic: then other than 1, as torch specializes on 0 and 1.
        strides: In elements; may be symbolic.
    """
    order = memory_order(sizes, strides)
    contiguity: list[bool | None] = [None] * len(order)
    inside: Any = 1
    for place in reversed(range(len(order))):
        size, stride = sizes[order[place]], strides[order[place]]
        if not _steps_nowhere(size, stride):
            contiguity[place] = bool(stride == inside)
            inside = size * stride
        elif not _is_one(size):
            # What lies outside of an expanded dimension is a step of its own.
            inside = None
    places = [0] * len(order)
    for place, i in enumerate(reversed(order)):
        places[i] = place
    row_major = list(reversed(range(len(order))))
    return Layout(
        shape=tuple(1 if _is_one(size) else -1 for size in sizes),
        contiguity=tuple(contiguity),
        stride_order=None if places == row_major else tuple(places),
    )


def layout_class(tensor: torch.Tensor) -> Layout | None:
    """Return the layout of a real tensor, or None for one without elements, which no kernel is launched for."""
    return None if tensor.numel() == 0 else layout_of(tensor.shape, tensor.stride())


def _is_one(size: Any) -> bool:
    # A symbolic size is compared with nothing: that would put a guard on it.
    return type(size) is int and size == 1


def _steps_nowhere(size: Any, stride: Any) -> bool:
    return _is_one(size) or (type(stride) is int and stride == 0)
