"""Choices between values, and values held within bounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule

aten = torch.ops.aten


def _boolean_condition(node: fx.Node, condition: fx.Node, *_: Any) -> str | None:
    return None if meta(condition).dtype is torch.bool else f"a condition of {meta(condition).dtype}"


@rule(
    aten.where.self,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
    aten.where.Scalar,
    claim=_boolean_condition,
)
def where(e: Emitter, condition: fx.Node, self: Any, other: Any) -> Value:
    """``self`` where a condition holds, ``other`` elsewhere."""
    dtype, rank = e.out.dtype, e.out.dim()
    wide = compute_dtype(dtype)
    a, b = e.operand(self, wide, rank), e.operand(other, wide, rank)
    chosen = e.operand(condition, torch.bool, rank)
    if not isinstance(self, fx.Node) and not isinstance(other, fx.Node):
        # Two constants would give a result of nvFuser's own choice of dtype.
        a = e.full((1,) * rank, self, wide)
    return e.result(e.ops.where(chosen, a, b), wide)


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(e: Emitter, self: fx.Node, mask: fx.Node, value: Any) -> Value:
    """``value`` where a mask is set."""
    wide, rank = compute_dtype(e.out.dtype), e.out.dim()
    chosen = e.operand(mask, torch.bool, rank)
    return e.result(e.ops.where(chosen, e.operand(value, wide, rank), e.operand(self, wide, rank)), wide)


def _number_bounds(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    return "of booleans" if node.meta["val"].dtype is torch.bool else None


@rule(aten.clamp.default, aten.clamp.Tensor, claim=_number_bounds)
def clamp(e: Emitter, self: fx.Node, min: Any = None, max: Any = None) -> Value:  # noqa: A002
    """Held between two bounds, either of which may be missing; NaN stays. The upper one wins."""
    wide, rank = compute_dtype(e.out.dtype), e.out.dim()
    made = e.operand(self, wide, rank)
    if min is not None:
        made = e.ops.maximum(made, e.operand(min, wide, rank))
    if max is not None:
        made = e.ops.minimum(made, e.operand(max, wide, rank))
    return e.result(made, wide)


@rule(aten.clamp_min.default, aten.clamp_min.Tensor, claim=_number_bounds)
def clamp_min(e: Emitter, self: fx.Node, min: Any) -> Value:  # noqa: A002
    """Held above a bound."""
    return clamp(e, self, min)


@rule(aten.clamp_max.default, aten.clamp_max.Tensor, claim=_number_bounds)
def clamp_max(e: Emitter, self: fx.Node, max: Any) -> Value:  # noqa: A002
    """Held below a bound."""
    return clamp(e, self, None, max)


@rule(aten.nan_to_num.default)
def nan_to_num(
    e: Emitter,
    self: fx.Node,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    """Finite numbers in the place of NaN and infinities, by default the largest of the tensor's own dtype."""
    if not e.out.dtype.is_floating_point:
        made: Value = e.ops.set(e.tensor(self))
        return made
    wide, limits = compute_dtype(e.out.dtype), torch.finfo(e.out.dtype)
    x = e.operand(self, wide)
    made = e.ops.where(e.ops.isnan(x), e.constant(nan or 0.0, wide), x)
    made = e.ops.where(e.ops.isposinf(x), e.constant(limits.max if posinf is None else posinf, wide), made)
    made = e.ops.where(e.ops.isneginf(x), e.constant(limits.min if neginf is None else neginf, wide), made)
    return e.result(made, wide)
