"""Decompositions that torch has not, or has in pieces that nvFuser lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["OWN"]

aten = torch.ops.aten


def slice_backward(gradient: Tensor, sizes: list[Any], dim: int, start: Any, end: Any, step: Any) -> Any:
    """Pad the gradient of a slice with zeros to the size of what was sliced."""
    if step != 1:
        return NotImplemented
    dim = dim % len(sizes)
    size = sizes[dim]
    # Read off the gradient: an end far beyond the tensor, as the one that stands for "to the end", is common.
    if not all(isinstance(number, int) for number in (start, size, gradient.shape[dim])):
        return NotImplemented
    first = min(max(start + size if start < 0 else start, 0), size)
    return _pad(gradient, dim, first, size - first - gradient.shape[dim])


def select_backward(gradient: Tensor, sizes: list[Any], dim: int, index: Any) -> Any:
    """Pad the gradient of a selected slice with zeros to the size of what it was selected from."""
    dim = dim % len(sizes)
    size = sizes[dim]
    if not (isinstance(index, int) and isinstance(size, int)):
        return NotImplemented
    index = index % size
    return _pad(aten.unsqueeze.default(gradient, dim), dim, index, size - index - 1)


def _pad(gradient: Tensor, dim: int, before: int, after: int) -> Tensor:
    widths = [0, 0] * (gradient.dim() - dim - 1) + [before, after]
    padded: Tensor = aten.constant_pad_nd.default(gradient, widths, 0)
    return padded


def arange(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    """Count in integers and convert, where floating-point numbers are asked for and all steps are whole."""
    whole = all(isinstance(number, (int, torch.SymInt)) for number in (start, end, step))
    if dtype is None or not dtype.is_floating_point or not whole or pin_memory:
        return NotImplemented
    counted = aten.arange.start_step(start, end, step, dtype=torch.int64, layout=layout, device=device)
    return aten._to_copy.default(counted, dtype=dtype)


OWN: dict[Any, Callable[..., Any]] = {
    aten.arange.start_step: arange,
    aten.slice_backward.default: slice_backward,
    aten.select_backward.default: select_backward,
}
"""Operator → function. Each returns ``NotImplemented`` for a call that it leaves as it is."""
