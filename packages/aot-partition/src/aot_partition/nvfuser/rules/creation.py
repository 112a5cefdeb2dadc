"""Tensors made of numbers alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, meta
from aot_partition.nvfuser.rules import rule

aten, prims = torch.ops.aten, torch.ops.prims


def _number(node: fx.Node, first: Any, fill_value: Any, *_: Any, **__: Any) -> str | None:
    if isinstance(fill_value, fx.Node):
        return None if type(meta(fill_value)) is torch.SymInt else "filled with the value of a tensor"
    return None if isinstance(fill_value, (bool, int, float)) else f"filled with {fill_value!r}"


def _last_number(node: fx.Node, self: Any, size: Any, fill_value: Any, **__: Any) -> str | None:
    return _number(node, self, fill_value)


@rule(aten.new_full.default, kind="create", claim=_last_number)
@rule(aten.full.default, aten.full_like.default, kind="create", claim=_number)
def full(e: Emitter, first: Any, *rest: Any, fill_value: Any = None, **__: Any) -> Value:
    """One number everywhere."""
    number = rest[-1] if rest else fill_value
    dtype = e.out.dtype
    made: Value = e.ops.full(e.shape(e.out.shape), e.operand(number, dtype), dtype)
    return made


@rule(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    # What an empty tensor holds is nobody's business: it may be zeros.
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
    prims.empty_strided.default,
    aten.empty_permuted.default,
    kind="create",
)
def zeros(e: Emitter, *_: Any, **__: Any) -> Value:
    """Zeros."""
    return e.full(e.out.shape, 0, e.out.dtype)


@rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default, kind="create")
def ones(e: Emitter, *_: Any, **__: Any) -> Value:
    """Ones."""
    return e.full(e.out.shape, 1, e.out.dtype)


def _python_number(node: fx.Node, s: Any, **_: Any) -> str | None:
    return None if isinstance(s, (bool, int, float)) else "of a symbolic number"


@rule(aten.scalar_tensor.default, kind="create", claim=_python_number)
def scalar_tensor(e: Emitter, s: float, **_: Any) -> Value:
    """A tensor without dimensions."""
    return e.full((), s, e.out.dtype)


def _numbers(node: fx.Node, *numbers: Any, **__: Any) -> str | None:
    return "between symbolic numbers" if any(isinstance(each, fx.Node) for each in numbers) else None


@rule(aten.arange.default, aten.arange.start, aten.arange.start_step, kind="create", claim=_numbers)
def arange(e: Emitter, *numbers: float, **_: Any) -> Value:
    """Evenly spaced numbers: of floats, the first one plus a multiple of the step, as eager kernels have it."""
    start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    length, dtype = e.out.shape[0], e.out.dtype
    if not dtype.is_floating_point:
        return e.result(e.indices(length, start=int(start), step=int(step)), torch.int64)
    # In double, as on the device: the sum of a float start and many float steps would drift.
    count = e.ops.cast(e.indices(length), torch.float64)
    scaled = e.ops.mul(count, e.constant(step, torch.float64))
    return e.result(e.ops.add(scaled, e.constant(start, torch.float64)), torch.float64)


@rule(prims.iota.default, kind="create", claim=_numbers)
def iota(e: Emitter, length: int, *, start: int, step: int, **_: Any) -> Value:
    """Evenly spaced integers."""
    return e.result(e.indices(length, start=start, step=step), torch.int64)


@rule(aten.fill.Scalar, kind="create", claim=_number)
def fill(e: Emitter, self: fx.Node, value: Any) -> Value:
    """One number everywhere."""
    made: Value = e.ops.full(e.shape(e.out.shape), e.operand(value, e.out.dtype), e.out.dtype)
    return made


@rule(aten.fill.Tensor, kind="create")
def fill_with_tensor(e: Emitter, self: fx.Node, value: fx.Node) -> Value:
    """The value of a tensor without dimensions everywhere."""
    return e.expanded(e.operand(value, e.out.dtype), (), e.out.shape)
