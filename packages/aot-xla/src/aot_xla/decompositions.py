"""Operators of which XLA's own version is another than PyTorch's, spelled out in operators where it is not.

=====================  =======================================================================
operator               torch_xla 2.9
=====================  =======================================================================
``copy``               writes to its first argument, of which a functional graph is sure that it stays
batch norm             leaves the variance of the batch biased in ``running_var``
``native_dropout``     returns a scaled mask of floats, and ignores the scale in the backward
``maximum, minimum``   drop a NaN in the second argument
``clamp`` on one side  takes the dtype's largest number for the missing bound: infinity is cut
``div`` of integers    rounds through float32
attention on the CPU   is unknown, a fused kernel of the CPU's
=====================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aot_xla import _compat
from aot_xla.attention import attention, attention_backward

__all__ = ["decompositions"]

aten = torch.ops.aten

Number = int | float


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the table: ``{operator: function}``."""
    return {
        aten.clamp_max.default: clamp_max,
        aten.clamp_min.default: clamp_min,
        aten.clamp.default: clamp,
        aten.copy.default: copy,
        aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
        aten.div.Scalar_mode: divide,
        aten.div.Tensor_mode: divide,
        aten.floor_divide.default: floor_divide,
        aten.maximum.default: maximum,
        aten.minimum.default: minimum,
        **_compat.decompositions_of_torch("_native_batch_norm_legit_functional", "native_batch_norm"),
        **_compat.decompositions_of_torch("native_dropout", "native_dropout_backward"),
    }


def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What ``target`` holds after ``source`` was copied into it."""
    placed = source.to(device=target.device, dtype=target.dtype).expand(target.shape)
    return placed.clone(memory_format=torch.contiguous_format)


def maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The larger, or NaN if either is."""
    return torch.where((a >= b) | (a != a), a, b)


def minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The smaller, or NaN if either is."""
    return torch.where((a <= b) | (a != a), a, b)


def clamp_min(x: torch.Tensor, bound: Number) -> torch.Tensor:
    """``x``, or the bound where it is below."""
    return torch.where(x < bound, bound, x)


def clamp_max(x: torch.Tensor, bound: Number) -> torch.Tensor:
    """``x``, or the bound where it is above."""
    return torch.where(x > bound, bound, x)


def clamp(x: torch.Tensor, low: Number | None = None, high: Number | None = None) -> torch.Tensor:
    """``x`` between two bounds; the upper one wins where they cross."""
    if low is not None:
        x = clamp_min(x, low)
    return x if high is None else clamp_max(x, high)


def divide(a: torch.Tensor, b: Any, *, rounding_mode: str | None = None) -> Any:
    """Division rounded down or towards zero, exact for integers."""
    if rounding_mode is None or not _is_integer(a) or not _is_integer(b):
        return NotImplemented
    quotient = floor_divide(a, b)
    if rounding_mode == "trunc":
        inexact = a - quotient * b != 0
        signs_differ = (a < 0) != (b < 0)
        quotient = torch.where(inexact & signs_differ, quotient + 1, quotient)
    return quotient


def floor_divide(a: torch.Tensor, b: Any) -> Any:
    """Integer division rounded down.

    In float64 the first quotient of two int64 is off by up to 2**10, and the remainder tells by how much: divided
    anew, it leaves an error of at most one.
    """
    if not _is_integer(a) or not _is_integer(b):
        return NotImplemented
    dtype = torch.result_type(a, b)
    a = a.to(torch.int64)
    b = (
        b.to(torch.int64)
        if isinstance(b, torch.Tensor)
        else torch.full((), b, dtype=torch.int64, device=a.device)
    )
    quotient = torch.zeros_like(a + b)
    for _ in range(3):
        remainder = a - quotient * b
        quotient = quotient + torch.floor(remainder.double() / b.double()).to(torch.int64)
    remainder = a - quotient * b
    too_large = (remainder != 0) & ((remainder < 0) != (b < 0))
    quotient = torch.where(too_large, quotient - 1, quotient)
    return quotient.to(dtype)


def _is_integer(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not (value.dtype.is_floating_point or value.dtype.is_complex)
    return isinstance(value, (int, torch.SymInt))
