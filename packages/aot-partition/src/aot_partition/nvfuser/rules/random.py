"""Random numbers, drawn from a seed and an offset that the fusion is given.

A fusion draws nothing from a generator: it is a function of its inputs, two of which say where in the sequence of
random numbers its drawings begin. Run with the same two again, it gives the same bits. They are not eager PyTorch's,
as nvFuser's kernels number their elements in another way (NVIDIA/Fuser#557).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule

aten = torch.ops.aten


def _floating_point(node: fx.Node, *_: Any, generator: Any = None, **__: Any) -> str | None:
    if generator is not None:
        return "from a generator of its own"
    value = node.meta["val"]
    made = value if isinstance(value, torch.Tensor) else value[0]
    return None if made.dtype.is_floating_point else f"random numbers of {made.dtype}"


def _drawn(
    e: Emitter, name: str, first: float, second: float, dtype: torch.dtype, like: torch.Tensor
) -> Value:
    wide = compute_dtype(dtype)
    bounds = (e.constant(first, wide), e.constant(second, wide))
    seed, offset = e.drawing()
    made = e.ops(name, *bounds, e.shape(like.shape), rng_seed=seed, rng_offset=offset, dtype=wide)
    return e.cast(made, wide, dtype)


@rule(aten.rand.default, aten.rand_like.default, kind="random", claim=_floating_point)
def uniform(e: Emitter, *_: Any, **__: Any) -> Value:
    """Numbers from [0, 1)."""
    return _drawn(e, "uniform", 0.0, 1.0, e.out.dtype, e.out)


@rule(aten.randn.default, aten.randn_like.default, kind="random", claim=_floating_point)
def normal(e: Emitter, *_: Any, **__: Any) -> Value:
    """Numbers of mean 0 and variance 1."""
    return _drawn(e, "normal", 0.0, 1.0, e.out.dtype, e.out)


@rule(aten.native_dropout.default, kind="random", claim=_floating_point)
def dropout(e: Emitter, input: fx.Node, p: float, train: bool | None) -> tuple[Value, Value]:  # noqa: A002
    """What is kept of a tensor, scaled up so that its mean stays; and where it was kept."""
    result, _ = e.out
    wide = compute_dtype(result.dtype)
    x = e.operand(input, wide)
    if train is False:
        return e.ops.set(e.tensor(input)), e.full(result.shape, True, torch.bool)
    kept = e.ops.lt(_drawn(e, "uniform", 0.0, 1.0, wide, meta(input)), e.constant(1.0 - p, wide))
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    scaled = e.ops.mul(e.ops.mul(x, e.ops.cast(kept, wide)), e.constant(scale, wide))
    return e.cast(scaled, wide, result.dtype), kept


def _plain_chance(node: fx.Node, self: fx.Node, p: Any = None, *, generator: Any = None) -> str | None:
    if isinstance(p, fx.Node):
        return "with the chance of a tensor"
    return _floating_point(node, generator=generator)


@rule(aten.bernoulli.default, aten.bernoulli.p, kind="random", claim=_plain_chance)
def bernoulli(e: Emitter, self: fx.Node, p: float | None = None, **_: Any) -> Value:
    """1 by a chance that is one number, or that each element says, and 0 else."""
    wide = compute_dtype(e.out.dtype)
    chance = e.operand(self, wide) if p is None else e.constant(p, wide)
    drawn = _drawn(e, "uniform", 0.0, 1.0, wide, e.out)
    return e.cast(e.ops.lt(drawn, chance), torch.bool, e.out.dtype)


def _finite_bounds(node: fx.Node, self: Any, *bounds: Any, generator: Any = None, **_: Any) -> str | None:
    if any(isinstance(each, fx.Node) for each in bounds):
        return "between symbolic numbers"
    return _floating_point(node, generator=generator)


@rule(aten.uniform.default, kind="random", claim=_finite_bounds)
def uniform_between(e: Emitter, self: fx.Node, *bounds: float, **_: Any) -> Value:
    """Numbers from an interval, by default [0, 1)."""
    low, high = (*bounds, *(0.0, 1.0)[len(bounds) :])
    return _drawn(e, "uniform", low, high, e.out.dtype, e.out)


@rule(aten.normal_functional.default, kind="random", claim=_finite_bounds)
def normal_about(e: Emitter, self: fx.Node, *moments: float, **_: Any) -> Value:
    """Normally distributed numbers of a mean and a deviation, by default 0 and 1."""
    mean, deviation = (*moments, *(0.0, 1.0)[len(moments) :])
    return _drawn(e, "normal", mean, deviation, e.out.dtype, e.out)


@rule(
    aten.normal.Tensor_Tensor,
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal.float_float,
    kind="random",
    claim=_floating_point,
)
def normal_of_moments(e: Emitter, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> Value:
    """Normally distributed numbers, each of a mean and a deviation that a tensor may say."""
    wide, rank = compute_dtype(e.out.dtype), e.out.dim()
    drawn = _drawn(e, "normal", 0.0, 1.0, wide, e.out)
    made = e.ops.add(e.ops.mul(drawn, e.operand(std, wide, rank)), e.operand(mean, wide, rank))
    return e.result(made, wide)


@rule(aten.log_normal.default, kind="random", claim=_finite_bounds)
def log_normal(e: Emitter, self: fx.Node, *moments: float, **_: Any) -> Value:
    """Numbers whose logarithms are normally distributed, by default with mean 1 and deviation 2."""
    mean, deviation = (*moments, *(1.0, 2.0)[len(moments) :])
    wide = compute_dtype(e.out.dtype)
    return e.result(e.ops.exp(_drawn(e, "normal", mean, deviation, wide, e.out)), wide)


def _negative_logarithm(e: Emitter, wide: torch.dtype) -> Value:
    """``-log(1 - u)`` of a uniform ``u``, which is less than 1: exponentially distributed."""
    drawn = _drawn(e, "uniform", 0.0, 1.0, wide, e.out)
    made: Value = e.ops.neg(e.ops.log1p(e.ops.neg(drawn)))
    return made


@rule(aten.exponential.default, kind="random", claim=_finite_bounds)
def exponential(e: Emitter, self: fx.Node, lambd: float = 1.0, **_: Any) -> Value:
    """Waiting times at a rate, by default 1."""
    wide = compute_dtype(e.out.dtype)
    return e.result(e.ops.truediv(_negative_logarithm(e, wide), e.constant(lambd, wide)), wide)


@rule(aten.geometric.default, kind="random", claim=_finite_bounds)
def geometric(e: Emitter, self: fx.Node, p: float, **_: Any) -> Value:
    """How many tries it takes until one of chance ``p`` succeeds: a waiting time, rounded up to a whole number."""
    wide = compute_dtype(e.out.dtype)
    time = _negative_logarithm(e, wide)
    tries = e.ops.ceil(e.ops.truediv(time, e.constant(-math.log1p(-p), wide)))
    return e.result(e.ops.maximum(tries, e.constant(1, wide)), wide)


@rule(aten.cauchy.default, kind="random", claim=_finite_bounds)
def cauchy(e: Emitter, self: fx.Node, *about: float, **_: Any) -> Value:
    """Tangents of angles that are all as likely, by default about 0 and of width 1."""
    median, sigma = (*about, *(0.0, 1.0)[len(about) :])
    wide = compute_dtype(e.out.dtype)
    tangent = e.ops.tan(_drawn(e, "uniform", -math.pi / 2, math.pi / 2, wide, e.out))
    return e.result(e.ops.add(e.ops.mul(tangent, e.constant(sigma, wide)), e.constant(median, wide)), wide)


WIDEST = 2**32
"""How many integers to draw from at most: so many are equally likely but for what a double can't tell apart."""


def _bounds(node: fx.Node) -> tuple[Any, Any]:
    # ``randint(high, …)`` or ``randint.low(low, high, …)``, after a tensor in ``randint_like``.
    numbers = node.args[1:] if "randint_like" in str(node.target) else node.args
    return (numbers[0], numbers[1]) if "low" in str(node.target).rpartition(".")[2] else (0, numbers[0])


def _few_integers(node: fx.Node, *_: Any, generator: Any = None, **__: Any) -> str | None:
    if generator is not None:
        return "from a generator of its own"
    low, high = _bounds(node)
    if not (isinstance(low, int) and isinstance(high, int)):
        return "between symbolic numbers"
    return "from more than 2³² integers" if high - low > WIDEST else None


@rule(
    aten.randint.default,
    aten.randint.low,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
    kind="random",
    claim=_few_integers,
)
def integers(e: Emitter, *_: Any, **__: Any) -> Value:
    """Integers from a range, all as likely."""
    low, high = _bounds(e.node)
    drawn = _drawn(e, "uniform", 0.0, 1.0, torch.float64, e.out)
    whole = e.ops.floor(e.ops.mul(drawn, e.constant(high - low, torch.float64)))
    whole = e.ops.minimum(whole, e.constant(high - low - 1, torch.float64))
    made = e.ops.add(e.ops.cast(whole, torch.int64), e.constant(low, torch.int64))
    return e.result(made, torch.int64)


@rule(aten.rrelu_with_noise_functional.default, kind="random", claim=_floating_point)
def randomly_leaky_relu(
    e: Emitter,
    self: fx.Node,
    noise: fx.Node,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Value, Value]:
    """What is negative, weakened by a slope that is drawn from an interval; and the slopes, 1 for what is not.

    Outside of training the slope is the interval's middle, and the noise stays as it was.
    """
    wide = compute_dtype(e.out[0].dtype)
    x = e.operand(self, wide)
    negative = e.ops.le(x, e.constant(0, wide))
    if training:
        drawn = _drawn(e, "uniform", lower, upper, wide, e.out[0])
        slope = e.ops.where(negative, drawn, e.constant(1, wide))
        made, kept = e.ops.mul(x, slope), e.cast(slope, wide, e.out[1].dtype)
    else:
        weak = e.ops.mul(x, e.constant((lower + upper) / 2, wide))
        made, kept = e.ops.where(negative, weak, x), e.ops.set(e.tensor(noise))
    return e.cast(made, wide, e.out[0].dtype), kept
