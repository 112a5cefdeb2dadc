"""Special functions, by series of Chebyshev polynomials.

nvFuser has no Bessel functions and the like. On an interval where a function, made smooth by a factor that is known
exactly, is analytic, some thirty Chebyshev polynomials give it to the last digit of a double. The coefficients are
computed from torch's own float64 kernels on the CPU when a rule is first used, so that no table is to be trusted
(Clenshaw's recurrence: C. W. Clenshaw, "A note on the summation of Chebyshev series", 1955).
"""

from __future__ import annotations

import functools
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

TERMS = 34
"""Terms of a series. More than a double can hold."""


@functools.cache
def chebyshev(smooth: Callable[[torch.Tensor], torch.Tensor]) -> tuple[float, ...]:
    """Return the coefficients of a function on [-1, 1], from its values at the Chebyshev nodes."""
    nodes = math.pi * (torch.arange(4 * TERMS, dtype=torch.float64) + 0.5) / (4 * TERMS)
    values = smooth(torch.cos(nodes))
    orders = torch.arange(TERMS, dtype=torch.float64)[:, None]
    coefficients = (values * torch.cos(orders * nodes)).sum(1) * 2 / (4 * TERMS)
    coefficients[0] /= 2
    found = coefficients.tolist()
    # What is below the last digit of the largest term adds nothing but noise.
    noise = max(map(abs, found)) * 2e-17
    while len(found) > 1 and abs(found[-1]) < noise:
        found.pop()
    return tuple(found)


class Arithmetic:
    """Arithmetic of values and numbers in one dtype, for formulas that are written once.

    Args:
        e: Where instructions go.
        dtype: The dtype in which all is computed.
    """

    def __init__(self, e: Emitter, dtype: torch.dtype) -> None:
        self.ops = e.ops
        self._e = e
        self._dtype = dtype

    def __call__(self, number: float) -> Value:
        """Return a constant."""
        return self._e.constant(number, self._dtype)

    def add(self, a: Value, *others: Value | float) -> Value:
        """Return a sum."""
        for each in others:
            a = self.ops.add(a, self._value(each))
        return a

    def sub(self, a: Value | float, b: Value | float) -> Value:
        """Return a difference."""
        made: Value = self.ops.sub(self._value(a), self._value(b))
        return made

    def mul(self, a: Value, *others: Value | float) -> Value:
        """Return a product."""
        for each in others:
            a = self.ops.mul(a, self._value(each))
        return a

    def div(self, a: Value | float, b: Value | float) -> Value:
        """Return a quotient."""
        made: Value = self.ops.truediv(self._value(a), self._value(b))
        return made

    def below(self, a: Value, b: Value | float) -> Value:
        """Tell where a value is less."""
        made: Value = self.ops.lt(a, self._value(b))
        return made

    def where(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """Choose. One of the two is a tensor."""
        made: Value = self.ops.where(condition, self._value(a), self._value(b))
        return made

    def series(self, smooth: Callable[[torch.Tensor], torch.Tensor], t: Value) -> Value:
        """Return a function of ``t`` in [-1, 1] by its Chebyshev series."""
        first, *others = chebyshev(smooth)
        twice, later, last = self.mul(t, 2.0), None, None
        for coefficient in reversed(others):
            made = self(coefficient) if last is None else self.add(self.mul(twice, last), coefficient)
            made = made if later is None else self.sub(made, later)
            later, last = last, made
        if last is None:
            return self.add(self.mul(t, 0.0), first)
        made = self.add(self.mul(t, last), first)
        return made if later is None else self.sub(made, later)

    def _value(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else self(x)


def _function(
    *operators: Any,
) -> Callable[[Callable[[Arithmetic, Value], Value]], Callable[[Arithmetic, Value], Value]]:
    """Declare a formula as the rule of operators of one floating-point operand."""

    def declare(formula: Callable[[Arithmetic, Value], Value]) -> Callable[[Arithmetic, Value], Value]:
        def emit(e: Emitter, x: fx.Node) -> Value:
            dtype = compute_dtype(_compat.promoted(meta(x), to="float"))
            return e.result(formula(Arithmetic(e, dtype), e.operand(x, dtype)), dtype)

        rule(*operators)(emit)
        return formula

    return declare


# --- modified Bessel functions -------------------------------------------------------------------------------

# Below 8 in x, above in 1/x: t = x/4 - 1, and t = 16/x - 1.


def _near(x: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: x((t + 1) * 4)


def _far(x: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: x(16 / (t + 1).clamp(min=1e-300))


_I0_NEAR, _I0_FAR = _near(torch.special.i0e), _far(lambda x: torch.special.i0e(x) * x.sqrt())
_I1_NEAR = _near(lambda x: torch.special.i1e(x.clamp(min=1e-300)) / x.clamp(min=1e-300))
_I1_FAR = _far(lambda x: torch.special.i1e(x) * x.sqrt())


def _in_two(
    a: Arithmetic,
    size: Value,
    near: Callable[[torch.Tensor], torch.Tensor],
    far: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[Value, Value]:
    inner = a.series(near, a.sub(a.mul(a.ops.minimum(size, a(8.0)), 0.25), 1.0))
    outer = a.series(far, a.sub(a.div(16.0, a.ops.maximum(size, a(8.0))), 1.0))
    return inner, outer


@_function(aten.special_i0e.default, prims.bessel_i0e.default)
def scaled_i0(a: Arithmetic, x: Value) -> Value:
    """``exp(-|x|) I₀(x)``."""
    size = a.ops.abs(x)
    inner, outer = _in_two(a, size, _I0_NEAR, _I0_FAR)
    return a.where(a.below(size, 8.0), inner, a.mul(outer, a.ops.rsqrt(a.ops.maximum(size, a(8.0)))))


@_function(aten.i0.default, prims.bessel_i0.default, aten.special_modified_bessel_i0.default)
def i0(a: Arithmetic, x: Value) -> Value:
    """``I₀(x)``."""
    return a.mul(scaled_i0(a, x), a.ops.exp(a.ops.abs(x)))


@_function(aten.special_i1e.default, prims.bessel_i1e.default)
def scaled_i1(a: Arithmetic, x: Value) -> Value:
    """``exp(-|x|) I₁(x)``, odd."""
    size = a.ops.abs(x)
    inner, outer = _in_two(a, size, _I1_NEAR, _I1_FAR)
    made = a.where(
        a.below(size, 8.0), a.mul(inner, size), a.mul(outer, a.ops.rsqrt(a.ops.maximum(size, a(8.0))))
    )
    return a.where(a.below(x, 0.0), a.ops.neg(made), made)


@_function(aten.special_i1.default, prims.bessel_i1.default, aten.special_modified_bessel_i1.default)
def i1(a: Arithmetic, x: Value) -> Value:
    """``I₁(x)``."""
    return a.mul(scaled_i1(a, x), a.ops.exp(a.ops.abs(x)))


# Below 2 what the logarithm leaves is a series in x²: t = x²/2 - 1. Above: t = 4/x - 1.


def _without_log(x: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: x(((t + 1) * 2).clamp(min=1e-12).sqrt())


_K0_NEAR = _without_log(
    lambda x: torch.special.modified_bessel_k0(x) + torch.log(x / 2) * torch.special.modified_bessel_i0(x)
)
_K1_NEAR = _without_log(
    lambda x: (
        x * (torch.special.modified_bessel_k1(x) - torch.log(x / 2) * torch.special.modified_bessel_i1(x))
    )
)


def _k_far(x: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def smooth(t: torch.Tensor) -> torch.Tensor:
        at = 4 / (t + 1).clamp(min=1e-300)
        return x(at) * at.sqrt()

    return smooth


_K0_FAR, _K1_FAR = (
    _k_far(torch.special.scaled_modified_bessel_k0),
    _k_far(torch.special.scaled_modified_bessel_k1),
)


def _k(a: Arithmetic, x: Value, order: int, scaled: bool) -> Value:
    small = a.ops.minimum(x, a(2.0))
    t = a.sub(a.mul(small, small, 0.5), 1.0)
    log = a.ops.log(a.mul(small, 0.5))
    if order == 0:
        near = a.sub(a.series(_K0_NEAR, t), a.mul(log, i0(a, small)))
    else:
        near = a.add(a.div(a.series(_K1_NEAR, t), small), a.mul(log, i1(a, small)))
    large = a.ops.maximum(x, a(2.0))
    far = a.series(_K1_FAR if order else _K0_FAR, a.sub(a.div(4.0, large), 1.0))
    far = a.mul(far, a.ops.rsqrt(large))
    if scaled:
        near = a.mul(near, a.ops.exp(small))
    else:
        far = a.mul(far, a.ops.exp(a.ops.neg(large)))
    made = a.where(a.ops.le(x, a(2.0)), near, far)
    made = a.where(a.below(x, 0.0), math.nan, made)
    return a.where(a.ops.eq(x, a(0.0)), math.inf, made)


for _order in (0, 1):
    _function(getattr(aten, f"special_modified_bessel_k{_order}").default)(
        functools.partial(_k, order=_order, scaled=False)
    )
    _function(getattr(aten, f"special_scaled_modified_bessel_k{_order}").default)(
        functools.partial(_k, order=_order, scaled=True)
    )


# --- Bessel functions ----------------------------------------------------------------------------------------

# Below 5 in x²: t = 2x²/25 - 1. Above by modulus and phase, in 1/x²: t = 50/x² - 1.


def _at_square(x: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: x(((t + 1) * 12.5).clamp(min=1e-12).sqrt())


_J0_NEAR = _at_square(torch.special.bessel_j0)
_J1_NEAR = _at_square(lambda x: torch.special.bessel_j1(x) / x)
_Y0_NEAR = _at_square(
    lambda x: torch.special.bessel_y0(x) - 2 / math.pi * torch.log(x) * torch.special.bessel_j0(x)
)
_Y1_NEAR = _at_square(
    lambda x: x * (torch.special.bessel_y1(x) - 2 / math.pi * torch.log(x) * torch.special.bessel_j1(x))
)


def _wave(order: int, part: str) -> Callable[[torch.Tensor], torch.Tensor]:
    j, y = (
        (torch.special.bessel_j0, torch.special.bessel_y0),
        (torch.special.bessel_j1, torch.special.bessel_y1),
    )[order]

    def smooth(t: torch.Tensor) -> torch.Tensor:
        # Farther out the phase itself loses digits, and the two parts are all but 1 and a multiple of 1/x.
        x = (50 / (t + 1).clamp(min=1e-300)).sqrt().clamp(max=1e4)
        phase = x - (math.pi / 4 + order * math.pi / 2)
        factor = (math.pi * x / 2).sqrt()
        even: torch.Tensor = factor * (j(x) * phase.cos() + y(x) * phase.sin())
        odd: torch.Tensor = factor * (y(x) * phase.cos() - j(x) * phase.sin()) * x
        return even if part == "even" else odd

    return smooth


_WAVES = {(order, part): _wave(order, part) for order in (0, 1) for part in ("even", "odd")}


def _oscillating(a: Arithmetic, size: Value, order: int, second_kind: bool) -> Value:
    large = a.ops.maximum(size, a(5.0))
    t = a.sub(a.div(50.0, a.mul(large, large)), 1.0)
    even = a.series(_WAVES[order, "even"], t)
    odd = a.div(a.series(_WAVES[order, "odd"], t), large)
    phase = a.sub(large, math.pi / 4 + order * math.pi / 2)
    sine, cosine = a.ops.sin(phase), a.ops.cos(phase)
    if second_kind:
        even, odd, sine = odd, even, a.ops.neg(sine)
    wave = a.sub(a.mul(even, cosine), a.mul(odd, sine))
    return a.mul(wave, a.ops.rsqrt(a.mul(large, math.pi / 2)))


@_function(aten.special_bessel_j0.default, prims.bessel_j0.default)
def j0(a: Arithmetic, x: Value) -> Value:
    """``J₀(x)``, even."""
    size = a.ops.abs(x)
    small = a.ops.minimum(size, a(5.0))
    near = a.series(_J0_NEAR, a.sub(a.mul(small, small, 0.08), 1.0))
    return a.where(a.below(size, 5.0), near, _oscillating(a, size, 0, False))


@_function(aten.special_bessel_j1.default, prims.bessel_j1.default)
def j1(a: Arithmetic, x: Value) -> Value:
    """``J₁(x)``, odd."""
    size = a.ops.abs(x)
    small = a.ops.minimum(size, a(5.0))
    near = a.mul(a.series(_J1_NEAR, a.sub(a.mul(small, small, 0.08), 1.0)), small)
    made = a.where(a.below(size, 5.0), near, _oscillating(a, size, 1, False))
    return a.where(a.below(x, 0.0), a.ops.neg(made), made)


def _y(a: Arithmetic, x: Value, order: int) -> Value:
    small = a.ops.minimum(a.ops.abs(x), a(5.0))
    t = a.sub(a.mul(small, small, 0.08), 1.0)
    log = a.mul(a.ops.log(small), 2 / math.pi)
    if order == 0:
        near = a.add(a.series(_Y0_NEAR, t), a.mul(log, j0(a, small)))
    else:
        near = a.add(a.div(a.series(_Y1_NEAR, t), small), a.mul(log, j1(a, small)))
    made = a.where(a.ops.le(x, a(5.0)), near, _oscillating(a, x, order, True))
    made = a.where(a.below(x, 0.0), math.nan, made)
    return a.where(a.ops.eq(x, a(0.0)), -math.inf, made)


for _order in (0, 1):
    _function(getattr(aten, f"special_bessel_y{_order}").default)(functools.partial(_y, order=_order))


@_function(aten.special_spherical_bessel_j0.default, prims.spherical_bessel_j0.default)
def spherical_j0(a: Arithmetic, x: Value) -> Value:
    """``sin(x) / x``; 1 at 0, and 0 at infinity."""
    square = a.mul(x, x)
    near = a.add(a.mul(square, a.add(a.mul(square, 1 / 120), -1 / 6)), 1.0)
    made = a.where(a.below(a.ops.abs(x), 1e-2), near, a.div(a.ops.sin(x), x))
    return a.where(a.ops.isinf(x), 0.0, made)


# --- error functions -----------------------------------------------------------------------------------------

_ERFCX_MIDDLE = 3.75
"""``(1 + 2x) exp(x²) erfc(x)`` is smooth in ``t = (x - 3.75) / (x + 3.75)`` (Shepherd & Laframboise, 1981)."""


def _erfcx_smooth(t: torch.Tensor) -> torch.Tensor:
    x = _ERFCX_MIDDLE * (1 + t) / (1 - t).clamp(min=1e-15)
    smooth: torch.Tensor = (1 + 2 * x) * torch.special.erfcx(x)
    return smooth


def _scaled_erfc(a: Arithmetic, x: Value) -> Value:
    """``exp(x²) erfc(x)`` for ``x >= 0``."""
    t = a.div(a.sub(x, _ERFCX_MIDDLE), a.add(x, _ERFCX_MIDDLE))
    # At infinity the quotient of infinities is NaN, and the function 0.
    made = a.div(a.series(_erfcx_smooth, t), a.add(a.mul(x, 2.0), 1.0))
    return a.where(a.ops.isinf(x), 0.0, made)


@_function(aten.special_erfcx.default, prims.erfcx.default)
def erfcx(a: Arithmetic, x: Value) -> Value:
    """``exp(x²) erfc(x)``."""
    made = _scaled_erfc(a, a.ops.abs(x))
    mirrored = a.sub(a.mul(a.ops.exp(a.mul(x, x)), 2.0), made)
    return a.where(a.below(x, 0.0), mirrored, made)


@_function(aten.special_log_ndtr.default)
def log_ndtr(a: Arithmetic, x: Value) -> Value:
    """The logarithm of the normal distribution function."""
    t = a.mul(x, math.sqrt(0.5))
    below = a.ops.minimum(t, a(-0.1))
    far = a.sub(a.ops.log(a.mul(_scaled_erfc(a, a.ops.neg(below)), 0.5)), a.mul(below, below))
    near = a.ops.log1p(a.mul(a.ops.erfc(t), -0.5))
    return a.where(a.below(x, -1.0), far, near)


@_function(aten.special_ndtri.default, prims.ndtri.default)
def ndtri(a: Arithmetic, p: Value) -> Value:
    """The inverse of the normal distribution function."""
    return a.mul(a.ops.erfcinv(a.mul(p, 2.0)), -math.sqrt(2.0))


# --- the logarithmic derivative of the gamma function ----------------------------------------------------------

_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


@_function(aten.digamma.default)
def digamma(a: Arithmetic, x: Value) -> Value:
    """``Γ'(x) / Γ(x)``: reflected for ``x < 0``, moved up beyond 10, and there by its asymptotic series."""
    negative = a.below(x, 0.0)
    size = a.where(negative, a.sub(1.0, x), x)
    total, moved = a.mul(size, 0.0), size
    for _ in range(10):
        small = a.below(moved, 10.0)
        total = a.sub(total, a.where(small, a.div(1.0, moved), 0.0))
        moved = a.where(small, a.add(moved, 1.0), moved)
    square = a.div(1.0, a.mul(moved, moved))
    tail = a.mul(square, _BERNOULLI[-1])
    for coefficient in reversed(_BERNOULLI[:-1]):
        tail = a.mul(square, a.add(tail, coefficient))
    made = a.sub(a.sub(a.add(total, a.ops.log(moved)), a.div(0.5, moved)), tail)
    # π cot(πx), from the remainder, so that large x keep their digits.
    rest = a.sub(x, a.ops.trunc(x))
    reflected = a.sub(made, a.div(math.pi, a.ops.tan(a.mul(rest, math.pi))))
    made = a.where(negative, reflected, made)
    whole = a.ops.logical_and(negative, a.ops.eq(x, a.ops.trunc(x)))
    made = a.where(whole, math.nan, made)
    zero = a.where(a.ops.signbit(x), math.inf, a.add(a.mul(x, 0.0), -math.inf))
    return a.where(a.ops.eq(x, a(0.0)), zero, made)


def _first_order(node: fx.Node, n: int, self: fx.Node) -> str | None:
    return None if n == 0 else f"of order {n}"


@rule(aten.polygamma.default, claim=_first_order)
def polygamma(e: Emitter, n: int, self: fx.Node) -> Value:
    """The function of order 0, which is `digamma`."""
    dtype = compute_dtype(e.out.dtype)
    return e.result(digamma(Arithmetic(e, dtype), e.operand(self, dtype)), dtype)
