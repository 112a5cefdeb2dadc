"""Random numbers, drawn from a seed and an offset that the fusion is given.

A fusion draws nothing from a generator: it is a function of its inputs, two of which say where in the sequence of
random numbers its drawings begin. Run with the same two again, it gives the same bits. They are not eager PyTorch's,
as nvFuser's kernels number their elements in another way (NVIDIA/Fuser#557).
"""

from __future__ import annotations

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


def _finite_bounds(node: fx.Node, self: fx.Node, *bounds: Any, generator: Any = None) -> str | None:
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
