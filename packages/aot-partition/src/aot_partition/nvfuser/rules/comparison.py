"""Comparisons, logic, and the bits of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.pointwise import binary_dtype

aten = torch.ops.aten


def _comparison(name: str) -> Callable[[Emitter, Any, Any], Value]:
    def emit(e: Emitter, self: Any, other: Any) -> Value:
        dtype = binary_dtype(e, self, other)
        if dtype is torch.bool:
            # Ordered like integers: False < True.
            dtype = torch.int64
        a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
        made: Value = e.ops(name, a, b)
        return made

    return emit


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    rule(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(_comparison(_name))


def truth(e: Emitter, x: fx.Node, rank: int | None = None) -> Value:
    """A tensor as booleans: whether each element is not zero."""
    dtype = meta(x).dtype
    if dtype is torch.bool:
        return e.operand(x, dtype, rank)
    wide = compute_dtype(dtype)
    made: Value = e.ops.ne(e.operand(x, wide, rank), e.constant(0, wide))
    return made


@rule(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default)
def logical(e: Emitter, self: fx.Node, other: fx.Node) -> Value:
    """Logic of whether elements are not zero."""
    a, b = truth(e, self, e.out.dim()), truth(e, other, e.out.dim())
    if e.node.target is aten.logical_and.default:
        made: Value = e.ops.logical_and(a, b)
    elif e.node.target is aten.logical_or.default:
        made = e.ops.logical_or(a, b)
    else:
        made = e.ops.ne(a, b)
    return made


@rule(aten.logical_not.default)
def logical_not(e: Emitter, self: fx.Node) -> Value:
    """Whether elements are zero."""
    made: Value = e.ops.logical_not(truth(e, self))
    return made


@rule(aten.bitwise_not.default)
def bitwise_not(e: Emitter, self: fx.Node) -> Value:
    """The other bits; of a boolean, its opposite."""
    made: Value = (e.ops.logical_not if meta(self).dtype is torch.bool else e.ops.bitwise_not)(e.tensor(self))
    return made


def _bitwise(name: str, of_booleans: str) -> Callable[[Emitter, Any, Any], Value]:
    def emit(e: Emitter, self: Any, other: Any) -> Value:
        dtype = binary_dtype(e, self, other)
        a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
        return e.result(e.ops(of_booleans if dtype is torch.bool else name, a, b), dtype)

    return emit


for _name, _of_booleans in (("and", "logical_and"), ("or", "logical_or"), ("xor", "ne")):
    _packet = getattr(aten, f"bitwise_{_name}")
    rule(_packet.Tensor, _packet.Scalar, _packet.Scalar_Tensor)(_bitwise(f"bitwise_{_name}", _of_booleans))


@rule(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar)
def shift_left(e: Emitter, self: fx.Node, other: Any) -> Value:
    """``self << other``, 0 where the shift is as wide as the number or negative."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    zero, width = e.constant(0, dtype), e.constant(_bits(dtype), dtype)
    fits = e.ops.logical_and(e.ops.ge(b, zero), e.ops.lt(b, width))
    by = e.ops.where(fits, b, zero)
    return e.result(e.ops.where(fits, e.ops.bitwise_left_shift(a, by), zero), dtype)


@rule(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar)
def shift_right(e: Emitter, self: fx.Node, other: Any) -> Value:
    """``self >> other`` with the sign kept; by more bits than there are, or by fewer than none, the sign alone."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    zero, most = e.constant(0, dtype), e.constant(_bits(dtype) - 1, dtype)
    fits = e.ops.logical_and(e.ops.ge(b, zero), e.ops.le(b, most))
    return e.result(e.ops.bitwise_right_shift(a, e.ops.where(fits, b, most)), dtype)


def _bits(dtype: torch.dtype) -> int:
    return torch.iinfo(dtype).bits


def _float_test(name: str, of_integers: bool) -> Callable[[Emitter, fx.Node], Value]:
    def emit(e: Emitter, self: fx.Node) -> Value:
        dtype = meta(self).dtype
        if not dtype.is_floating_point:
            return e.full(e.out.shape, of_integers, torch.bool)
        made: Value = e.ops(name, e.operand(self, compute_dtype(dtype)))
        return made

    return emit


for _name, _of_integers in (("isnan", False), ("isinf", False), ("isposinf", False), ("isneginf", False)):
    rule(getattr(aten, _name).default)(_float_test(_name, _of_integers))
rule(aten.isfinite.default)(_float_test("isfinite", True))


@rule(aten.signbit.default)
def signbit(e: Emitter, self: fx.Node) -> Value:
    """Whether the sign is set, of a zero too."""
    dtype = meta(self).dtype
    if dtype.is_floating_point:
        made: Value = e.ops.signbit(e.operand(self, compute_dtype(dtype)))
    elif dtype is torch.bool:
        made = e.full(e.out.shape, False, torch.bool)
    else:
        made = e.ops.lt(e.tensor(self), e.constant(0, dtype))
    return made
