"""Decompositions that torch has not, or has in pieces that nvFuser lacks, or in many more pieces."""

from __future__ import annotations

import math
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


def native_batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> Any:
    """Differentiate a batch norm with one view for each value per channel. torch's own takes three for each.

    With ``z = (x - mean) * invstd`` and means over all but the channels::

        gradient of x = (gradient - mean(gradient) - z * mean(gradient * z)) * invstd * weight
    """
    mean, invstd = (save_mean, save_invstd) if train else (running_mean, running_var)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    count = math.prod(x.shape[dim] for dim in dims)
    if mean is None or invstd is None or x.dim() < 2 or not isinstance(count, int) or not count:
        return NotImplemented
    wide = torch.promote_types(x.dtype, torch.float32)
    dy = gradient.to(wide)
    mean, invstd = mean.to(wide), invstd.to(wide)
    if not train:
        invstd = torch.rsqrt(invstd + eps)

    def by_channel(values: Tensor) -> Tensor:
        return values.view([x.shape[1] if dim == 1 else 1 for dim in range(x.dim())])

    for_x = for_weight = for_bias = None
    centred = x.to(wide) - by_channel(mean)
    total = dy.sum(dims)
    projected = (dy * centred).sum(dims)
    if output_mask[0]:
        scale = by_channel(invstd if weight is None else invstd * weight.to(wide))
        if train:
            along = by_channel(projected * (1 / count) * (invstd * invstd))
            dy = dy - centred * along - by_channel(total * (1 / count))
        for_x = (dy * scale).to(x.dtype)
    dtype = x.dtype if weight is None else weight.dtype
    if output_mask[1]:
        for_weight = (projected * invstd).to(dtype)
    if output_mask[2]:
        for_bias = total.to(dtype)
    return for_x, for_weight, for_bias


OWN: dict[Any, Callable[..., Any]] = {
    aten.arange.start_step: arange,
    aten.native_batch_norm_backward.default: native_batch_norm_backward,
    aten.slice_backward.default: slice_backward,
    aten.select_backward.default: select_backward,
}
"""Operator → function. Each returns ``NotImplemented`` for a call that it leaves as it is."""
