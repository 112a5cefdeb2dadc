"""Arithmetic and elementary functions of each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule

aten, prims = torch.ops.aten, torch.ops.prims

_FLOAT_FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p "
    "log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh"
)
"""Functions that give floats for integers too, by the names that torch and nvFuser both use."""

INTEGER_PRESERVING = ("ceil", "floor", "round", "trunc")
"""Functions that leave integers as they are."""


def _float_function(name: str) -> Callable[[Emitter, fx.Node], Value]:
    def emit(e: Emitter, x: fx.Node) -> Value:
        dtype = compute_dtype(_compat.promoted(meta(x), to="float"))
        return e.result(e.ops(name, e.operand(x, dtype)), dtype)

    return emit


for _name in _FLOAT_FUNCTIONS.split():
    rule(getattr(aten, _name).default)(_float_function(_name))
rule(aten.silu.default)(_float_function("silu"))
rule(prims.sqrt.default)(_float_function("sqrt"))


def _rounding(name: str) -> Callable[[Emitter, fx.Node], Value]:
    def emit(e: Emitter, x: fx.Node) -> Value:
        dtype = compute_dtype(e.out.dtype)
        if not dtype.is_floating_point:
            return e.ops.set(e.tensor(x))
        return e.result(e.ops(name, e.operand(x, dtype)), dtype)

    return emit


for _name in INTEGER_PRESERVING:
    rule(getattr(aten, _name).default, getattr(prims, _name).default)(_rounding(_name))


def _same_dtype(name: str) -> Callable[[Emitter, fx.Node], Value]:
    def emit(e: Emitter, x: fx.Node) -> Value:
        dtype = compute_dtype(e.out.dtype)
        return e.result(e.ops(name, e.operand(x, dtype)), dtype)

    return emit


def _not_bool(node: fx.Node, x: fx.Node, *_: Any) -> str | None:
    return "of booleans" if meta(x).dtype is torch.bool else None


for _name in ("neg", "relu", "frac"):
    rule(getattr(aten, _name).default, claim=_not_bool)(_same_dtype(_name))


@rule(aten.abs.default)
def absolute(e: Emitter, x: fx.Node) -> Value:
    """|x|; a boolean is its own."""
    if e.out.dtype is torch.bool:
        return e.ops.set(e.tensor(x))
    dtype = compute_dtype(e.out.dtype)
    return e.result(e.ops.abs(e.operand(x, dtype)), dtype)


@rule(aten.sign.default, aten.sgn.default, claim=_not_bool)
def sign(e: Emitter, x: fx.Node) -> Value:
    """-1, 0 or 1; 0 for NaN, as eager PyTorch has it."""
    dtype = compute_dtype(e.out.dtype)
    value, zero = e.operand(x, dtype), e.constant(0, dtype)
    positive = e.ops.cast(e.ops.gt(value, zero), dtype)
    negative = e.ops.cast(e.ops.lt(value, zero), dtype)
    return e.result(e.ops.sub(positive, negative), dtype)


def binary_dtype(e: Emitter, a: Any, b: Any) -> torch.dtype:
    """The dtype in which two operands are combined, by torch's rules of promotion."""
    return compute_dtype(_compat.promoted(meta(a), meta(b), to="common"))


def _not_bool_pair(node: fx.Node, *_: Any, **__: Any) -> str | None:
    return "of booleans" if node.meta["val"].dtype is torch.bool else None


@rule(aten.add.Tensor, aten.add.Scalar, prims.add.default)
def add(e: Emitter, self: Any, other: Any, alpha: float = 1) -> Value:
    """``self + alpha * other``; of booleans, whether one of them is true."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    if dtype is torch.bool:
        return e.ops.logical_or(a, b) if alpha else e.ops.set(a)
    return e.result(e.ops.add(a, _scaled(e, b, alpha, dtype)), dtype)


@rule(aten.sub.Tensor, aten.sub.Scalar, prims.sub.default)
def subtract(e: Emitter, self: Any, other: Any, alpha: float = 1) -> Value:
    """``self - alpha * other``."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    return e.result(e.ops.sub(a, _scaled(e, b, alpha, dtype)), dtype)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_reversed(e: Emitter, self: Any, other: Any, alpha: float = 1) -> Value:
    """``other - alpha * self``."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    return e.result(e.ops.sub(b, _scaled(e, a, alpha, dtype)), dtype)


def _scaled(e: Emitter, value: Value, alpha: float, dtype: torch.dtype) -> Value:
    return value if alpha == 1 else e.ops.mul(value, e.constant(alpha, dtype))


@rule(aten.mul.Tensor, aten.mul.Scalar, prims.mul.default)
def multiply(e: Emitter, self: Any, other: Any) -> Value:
    """``self * other``; of booleans, whether both are true."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    if dtype is torch.bool:
        return e.ops.logical_and(a, b)
    return e.result(e.ops.mul(a, b), dtype)


@rule(aten.div.Tensor, aten.div.Scalar)
def true_divide(e: Emitter, self: Any, other: Any) -> Value:
    """``self / other``, also of integers: nvFuser's own ``div`` truncates them."""
    dtype = compute_dtype(_compat.promoted(meta(self), meta(other), to="float"))
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    return e.result(e.ops.truediv(a, b), dtype)


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode, claim=_not_bool_pair)
def divide_rounded(e: Emitter, self: Any, other: Any, rounding_mode: str | None = None) -> Value:
    """The quotient, rounded towards zero (``"trunc"``) or down (``"floor"``)."""
    if rounding_mode is None:
        return true_divide(e, self, other)
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    if rounding_mode == "floor":
        made = _float_floor(e, a, b, dtype) if dtype.is_floating_point else _integer_floor(e, a, b, dtype)
    elif dtype.is_floating_point:
        made = e.ops.trunc(e.ops.truediv(a, b))
    else:
        made = e.ops.div(a, b)
    return e.result(made, dtype)


@rule(aten.floor_divide.default, claim=_not_bool_pair)
def floor_divide(e: Emitter, self: Any, other: Any) -> Value:
    """The quotient, rounded down."""
    return divide_rounded(e, self, other, "floor")


def _integer_floor(e: Emitter, a: Value, b: Value, dtype: torch.dtype) -> Value:
    zero = e.constant(0, dtype)
    quotient = e.ops.div(a, b)
    rest = e.ops.sub(a, e.ops.mul(quotient, b))
    below = e.ops.logical_and(e.ops.ne(rest, zero), e.ops.ne(e.ops.lt(rest, zero), e.ops.lt(b, zero)))
    return e.ops.sub(quotient, e.ops.cast(below, dtype))


def _float_floor(e: Emitter, a: Value, b: Value, dtype: torch.dtype) -> Value:
    """``floor(a / b)`` from the exact remainder, so that a quotient that was rounded up to a whole is not one."""
    ops, zero, one = e.ops, e.constant(0, dtype), e.constant(1, dtype)
    quotient = ops.truediv(a, b)
    rest = ops.fmod(a, b)
    exact = ops.truediv(ops.sub(a, rest), b)
    below = ops.logical_and(ops.ne(rest, zero), ops.ne(ops.lt(rest, zero), ops.lt(b, zero)))
    exact = ops.where(below, ops.sub(exact, one), exact)
    whole = ops.floor(exact)
    whole = ops.where(ops.gt(ops.sub(exact, whole), e.constant(0.5, dtype)), ops.add(whole, one), whole)
    # A zero has the sign of the quotient.
    whole = ops.where(ops.ne(exact, zero), whole, ops.mul(quotient, zero))
    return ops.where(ops.ne(b, zero), whole, quotient)


def _float_digits(node: fx.Node, self: fx.Node, *, decimals: int) -> str | None:
    return None if meta(self).dtype.is_floating_point else "digits of integers"


def _same_rule(name: str) -> Callable[..., Value]:
    def emit(e: Emitter, self: Any, other: Any) -> Value:
        dtype = binary_dtype(e, self, other)
        a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
        return e.result(e.ops(name, a, b), dtype)

    return emit


for _name in ("remainder", "fmod"):
    rule(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar, claim=_not_bool_pair)(_same_rule(_name))
rule(aten.gcd.default)(_same_rule("gcd"))


def _wide_enough(node: fx.Node, *_: Any) -> str | None:
    # The next 16-bit float is not the next float32, in which nvFuser computes.
    narrow = node.meta["val"].dtype in (torch.float16, torch.bfloat16)
    return "the next value of a 16-bit float" if narrow else None


rule(aten.nextafter.default, claim=_wide_enough)(_same_rule("nextafter"))


@rule(aten.maximum.default, aten.minimum.default, claim=_not_bool_pair)
def extreme(e: Emitter, self: fx.Node, other: fx.Node) -> Value:
    """The larger or the smaller; NaN if one of them is."""
    name = "maximum" if e.node.target is aten.maximum.default else "minimum"
    return _same_rule(name)(e, self, other)


@rule(aten.fmax.default, aten.fmin.default, claim=_not_bool_pair)
def extreme_number(e: Emitter, self: fx.Node, other: fx.Node) -> Value:
    """The larger or the smaller, where NaN counts as no number."""
    dtype = binary_dtype(e, self, other)
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    made = e.ops.maximum(a, b) if e.node.target is aten.fmax.default else e.ops.minimum(a, b)
    if dtype.is_floating_point:
        made = e.ops.where(e.ops.isnan(a), b, e.ops.where(e.ops.isnan(b), a, made))
    return e.result(made, dtype)


@rule(aten.atan2.default)
def arctangent(e: Emitter, self: fx.Node, other: fx.Node) -> Value:
    """The angle of a point, in all four quadrants."""
    dtype = compute_dtype(_compat.promoted(meta(self), meta(other), to="float"))
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    return e.result(e.ops.atan2(a, b), dtype)


@rule(aten.hypot.default, prims.hypot.default)
def hypotenuse(e: Emitter, self: fx.Node, other: fx.Node) -> Value:
    """``sqrt(self² + other²)`` without overflow on the way: the larger one is taken out of the root."""
    dtype = compute_dtype(e.out.dtype)
    a, b = (e.ops.abs(e.operand(each, dtype, e.out.dim())) for each in (self, other))
    large, small, zero = e.ops.maximum(a, b), e.ops.minimum(a, b), e.constant(0, dtype)
    share = e.ops.truediv(small, large)
    root = e.ops.sqrt(e.ops.add(e.ops.mul(share, share), e.constant(1, dtype)))
    made = e.ops.where(e.ops.eq(large, zero), zero, e.ops.mul(large, root))
    infinite = e.ops.logical_or(e.ops.isinf(a), e.ops.isinf(b))
    return e.result(e.ops.where(infinite, e.constant(math.inf, dtype), made), dtype)


@rule(aten.round.decimals, claim=_float_digits)
def round_to_digits(e: Emitter, self: fx.Node, *, decimals: int) -> Value:
    """Rounded to so many digits behind the point; before it, if their number is negative."""
    dtype = compute_dtype(e.out.dtype)
    x, power = e.operand(self, dtype), e.constant(10.0 ** abs(decimals), dtype)
    up, down = (e.ops.mul, e.ops.truediv) if decimals >= 0 else (e.ops.truediv, e.ops.mul)
    return e.result(down(e.ops.round(up(x, power)), power), dtype)


@rule(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(e: Emitter, self: fx.Node, other: Any) -> Value:
    """The magnitude of the one with the sign of the other, of a zero too."""
    dtype = compute_dtype(_compat.promoted(meta(self), meta(other), to="float"))
    a, b = e.operand(self, dtype, e.out.dim()), e.operand(other, dtype, e.out.dim())
    magnitude = e.ops.abs(a)
    if isinstance(other, fx.Node):
        made = e.ops.where(e.ops.signbit(b), e.ops.neg(magnitude), magnitude)
    else:
        made = e.ops.neg(magnitude) if math.copysign(1.0, other) < 0 else magnitude
    return e.result(made, dtype)


def _real_power(node: fx.Node, self: Any, exponent: Any) -> str | None:
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point and not isinstance(exponent, fx.Node) and exponent < 0:
        return "a negative power of integers"
    return "of booleans" if dtype is torch.bool else None


@rule(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar, claim=_real_power)
def power(e: Emitter, self: Any, exponent: Any) -> Value:
    """``self ** exponent``."""
    dtype = compute_dtype(_compat.promoted(meta(self), meta(exponent), to="power"))
    base, by = e.operand(self, dtype, e.out.dim()), e.operand(exponent, dtype, e.out.dim())
    return e.result(e.ops.pow(base, by), dtype)


@rule(aten.lerp.Tensor, aten.lerp.Scalar)
def lerp(e: Emitter, self: fx.Node, end: fx.Node, weight: Any) -> Value:
    """``self + weight * (end - self)``, from the nearer end."""
    dtype = compute_dtype(e.out.dtype)
    a, b, w = (e.operand(each, dtype, e.out.dim()) for each in (self, end, weight))
    one, distance = e.constant(1, dtype), e.ops.sub(b, a)
    near = e.ops.lt(e.ops.abs(w), e.constant(0.5, dtype))
    from_start = e.ops.add(a, e.ops.mul(w, distance))
    from_end = e.ops.sub(b, e.ops.mul(distance, e.ops.sub(one, w)))
    return e.result(e.ops.where(near, from_start, from_end), dtype)


@rule(aten.addcmul.default)
def add_product(e: Emitter, self: fx.Node, tensor1: fx.Node, tensor2: fx.Node, value: float = 1) -> Value:
    """``self + value * tensor1 * tensor2``."""
    dtype = compute_dtype(e.out.dtype)
    a, b, c = (e.operand(each, dtype, e.out.dim()) for each in (self, tensor1, tensor2))
    return e.result(e.ops.add(a, e.ops.mul(_scaled(e, b, value, dtype), c)), dtype)


@rule(aten.addcdiv.default)
def add_quotient(e: Emitter, self: fx.Node, tensor1: fx.Node, tensor2: fx.Node, value: float = 1) -> Value:
    """``self + value * tensor1 / tensor2``."""
    dtype = compute_dtype(e.out.dtype)
    a, b, c = (e.operand(each, dtype, e.out.dim()) for each in (self, tensor1, tensor2))
    return e.result(e.ops.add(a, e.ops.truediv(_scaled(e, b, value, dtype), c)), dtype)


@rule(aten.angle.default)
def angle(e: Emitter, self: fx.Node) -> Value:
    """π for what is negative, 0 for what is not, and NaN for NaN."""
    dtype = compute_dtype(e.out.dtype)
    x = e.operand(self, dtype)
    made = e.ops.where(
        e.ops.lt(x, e.constant(0, dtype)), e.constant(math.pi, dtype), e.full(e.out.shape, 0, dtype)
    )
    return e.result(e.ops.where(e.ops.isnan(x), x, made), dtype)
