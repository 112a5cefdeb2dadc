"""Values laid out in memory as a trace promised: strides, and which of them share memory.

XLA knows no strides. What comes from it is contiguous, and two views of one value are two values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aot_xla import _compat

__all__ = ["lay_out", "lay_out_together"]


def lay_out(value: torch.Tensor, promise: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor with the strides of a fake one.

    Args:
        value: Its size is a number in each dimension.
        promise: Its sizes may be symbols. Then the order of its strides is kept, and gaps are not.
    """
    if promise.layout is not torch.strided or value.numel() == 0:
        return value
    size, stride = value.size(), tuple(promise.stride())
    if not _compat.all_numbers(stride):
        stride = _dense_strides(size, [_compat.hint(step) or 0 for step in stride])
    if stride == value.stride():
        return value
    elements = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    memory = torch.empty(elements, dtype=value.dtype)
    return _write(memory, value, stride, 0)


def lay_out_together(values: Sequence[torch.Tensor], promises: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors that share memory as fake ones do.

    Where sizes are symbols, or dtypes differ, each gets memory of its own.
    """
    first = promises[0]
    numbers = [n for p in promises for n in (*p.stride(), p.storage_offset(), p.untyped_storage().nbytes())]
    if not _compat.all_numbers(numbers) or any(promise.dtype != first.dtype for promise in promises):
        return [lay_out(value, promise) for value, promise in zip(values, promises, strict=True)]
    memory = torch.empty(first.untyped_storage().nbytes() // first.element_size(), dtype=first.dtype)
    return [
        _write(memory, value, tuple(promise.stride()), int(promise.storage_offset()))
        for value, promise in zip(values, promises, strict=True)
    ]


def _write(memory: torch.Tensor, value: torch.Tensor, stride: Sequence[int], offset: int) -> torch.Tensor:
    """Write a value into memory and return it there: no view, of which autograd would keep account."""
    size, once = value.size(), value
    for dim, (n, step) in enumerate(zip(size, stride, strict=True)):
        if n > 1 and step == 0:
            # An expanded dimension: its elements are one.
            once = once.narrow(dim, 0, 1)
    memory.as_strided(once.size(), stride, offset).copy_(once)
    placed = torch.empty(0, dtype=memory.dtype)
    placed.set_(memory.untyped_storage(), offset, size, stride)
    return placed


def _dense_strides(size: Sequence[int], hints: Sequence[int]) -> tuple[int, ...]:
    """Return strides without gaps in the order of others, which may be unknown: then contiguous."""
    order = sorted(range(len(size)), key=lambda dim: -hints[dim]) if all(hints) else list(range(len(size)))
    strides, step = [0] * len(size), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(size[dim], 1)
    return tuple(strides)
