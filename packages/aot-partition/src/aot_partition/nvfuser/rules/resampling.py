"""Elements read at a grid of places: borders mirrored or repeated, images enlarged and shrunk, windows laid out.

Each is one selection at places that are computed from the sizes. Several dimensions are taken as one for it, so that
the tensor is read once, whatever the number of dimensions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import reshaped, selected

aten = torch.ops.aten


def _static_sizes(node: fx.Node, self: fx.Node, *numbers: Any, **named: Any) -> str | None:
    said = (*meta(self).shape, *node.meta["val"].shape)
    return "of symbolic sizes" if any(type(size) is not int for size in said) else None


def at_grid(
    e: Emitter, value: Value, sizes: Sequence[int], places: Sequence[Value], lengths: Sequence[int]
) -> Value:
    """Take the last dimensions of a tensor at places of their own.

    Args:
        e: Where instructions go.
        value: A tensor.
        sizes: Its sizes.
        places: For each of its last dimensions an int64 index of one dimension.
        lengths: How long these are.
    """
    first = len(sizes) - len(places)
    lead, taken = list(sizes[:first]), list(sizes[first:])
    linear: Value = places[0]
    if len(places) > 1:
        linear = e.along(places[0], 0, len(places))
        for i in range(1, len(places)):
            linear = e.ops.mul(linear, e.constant(taken[i], torch.int64))
            linear = e.ops.add(linear, e.along(places[i], i, len(places)))
        linear = reshaped(e, linear, lengths, [math.prod(lengths)])
        value = reshaped(e, value, sizes, [*lead, math.prod(taken)])
    made = selected(e, value, linear, first)
    return reshaped(e, made, [*lead, math.prod(lengths)], [*lead, *lengths])


# --- borders ---------------------------------------------------------------------------------------------------


def _held(e: Emitter, place: Value, size: int) -> Value:
    """A place, or the nearest one that a dimension has."""
    above = e.ops.maximum(place, e.constant(0, torch.int64))
    made: Value = e.ops.minimum(above, e.constant(size - 1, torch.int64))
    return made


def _mirrored(e: Emitter, place: Value, size: int) -> Value:
    """A place, or the one that lies as far behind the border, which itself is not repeated."""
    last = e.constant(size - 1, torch.int64)
    made: Value = e.ops.sub(last, e.ops.abs(e.ops.sub(last, e.ops.abs(place))))
    return made


def _bordered(place_of: Callable[[Emitter, Value, int], Value]) -> Callable[[Emitter, fx.Node, Any], Value]:
    def emit(e: Emitter, self: fx.Node, padding: Sequence[int]) -> Value:
        sizes, count = tuple(meta(self).shape), len(padding) // 2
        taken, lengths = sizes[-count:], tuple(e.out.shape)[-count:]
        # The room of the last dimension comes first.
        before = padding[-2::-2]
        places = [
            place_of(e, e.indices(length, start=-room), size)
            for size, length, room in zip(taken, lengths, before, strict=True)
        ]
        return at_grid(e, e.tensor(self), sizes, places, lengths)

    return emit


for _name, _place_of in (("reflection", _mirrored), ("replication", _held)):
    rule(
        *(getattr(aten, f"{_name}_pad{rank}d").default for rank in (1, 2, 3)),
        kind="index",
        claim=_static_sizes,
    )(_bordered(_place_of))


# --- enlarged and shrunk ---------------------------------------------------------------------------------------

Tap = tuple[Value, "Value | None"]
"""A place of a dimension, and the weight of what is there; None for all of it."""


def _step(size: int, length: int, factor: float | None) -> float:
    """How far the source moves for one step of the result, by the factor that the caller gave or by the sizes."""
    return 1.0 / factor if factor else size / length


def _single(number: float) -> float:
    """A number as eager kernels hold it, who compute places in float32."""
    return float(np.float32(number))


def _nearest(
    e: Emitter, size: int, length: int, factor: float | None, middle: float
) -> list[tuple[Value, None]]:
    step = e.constant(_single(_step(size, length, factor)), torch.float32)
    count = e.ops.cast(e.indices(length), torch.float32)
    at = e.ops.add(count, e.constant(middle, torch.float32)) if middle else count
    place = e.ops.cast(e.ops.floor(e.ops.mul(at, step)), torch.int64)
    return [(_held(e, place, size), None)]


def _source(
    e: Emitter, size: int, length: int, factor: float | None, corners: bool, dtype: torch.dtype
) -> Value:
    """Where each element of the result lies in the source, between its elements."""
    count = e.ops.cast(e.indices(length), dtype)
    if corners:
        step = (size - 1) / (length - 1) if length > 1 else 0.0
        made: Value = e.ops.mul(count, e.constant(step, dtype))
        return made
    half, step = e.constant(0.5, dtype), _step(size, length, factor)
    made = e.ops.sub(e.ops.mul(e.ops.add(count, half), e.constant(step, dtype)), half)
    return made


def _linear(
    e: Emitter, size: int, length: int, factor: float | None, corners: bool, dtype: torch.dtype
) -> list[Tap]:
    at = e.ops.maximum(_source(e, size, length, factor, corners, dtype), e.constant(0, dtype))
    whole = e.ops.floor(at)
    share = e.ops.sub(at, whole)
    place = e.ops.cast(whole, torch.int64)
    after = e.ops.add(place, e.constant(1, torch.int64))
    rest = e.ops.sub(e.constant(1, dtype), share)
    return [(_held(e, place, size), rest), (_held(e, after, size), share)]


CUBIC = -0.75
"""The slope of the cubic kernel at distance 1 (R. Keys, "Cubic convolution interpolation", 1981), as torch has it."""


def _cubic(
    e: Emitter, size: int, length: int, factor: float | None, corners: bool, dtype: torch.dtype
) -> list[Tap]:
    at = _source(e, size, length, factor, corners, dtype)
    whole = e.ops.floor(at)
    share, place = e.ops.sub(at, whole), e.ops.cast(whole, torch.int64)
    rest = e.ops.sub(e.constant(1, dtype), share)

    def polynomial(x: Value, *coefficients: float) -> Value:
        made = e.constant(coefficients[0], dtype)
        for each in coefficients[1:]:
            made = e.ops.add(e.ops.mul(made, x), e.constant(each, dtype))
        return made

    def near(x: Value) -> Value:
        return polynomial(x, CUBIC + 2, -(CUBIC + 3), 0.0, 1.0)

    def far(x: Value) -> Value:
        return polynomial(x, CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)

    one = e.constant(1, dtype)
    weights = (far(e.ops.add(share, one)), near(share), near(rest), far(e.ops.add(rest, one)))
    return [
        (_held(e, e.ops.add(place, e.constant(i - 1, torch.int64)), size), weight)
        for i, weight in enumerate(weights)
    ]


def _weighed(e: Emitter, self: fx.Node, taps: Sequence[Sequence[Tap]], dtype: torch.dtype) -> Value:
    """Add up what is found at all combinations of the places of dimensions, each by its weights."""
    sizes, rank = tuple(meta(self).shape), meta(self).dim()
    first = rank - len(taps)
    lengths, total = tuple(e.out.shape)[first:], None
    for combination in itertools.product(*taps):
        made = at_grid(e, e.tensor(self), sizes, [place for place, _ in combination], lengths)
        weights = [(i, weight) for i, (_, weight) in enumerate(combination) if weight is not None]
        if weights:
            made = e.cast(made, meta(self).dtype, dtype)
        for i, weight in weights:
            made = e.ops.mul(made, e.along(weight, first + i, rank))
        total = made if total is None else e.ops.add(total, made)
    assert total is not None
    return e.result(total, dtype) if any(weight is not None for _, weight in taps[0]) else total


def _resized(kernel: Callable[..., Sequence[Tap]], *, corners: bool) -> Callable[..., Value]:
    def emit(e: Emitter, self: fx.Node, output_size: Sequence[int], *said: Any) -> Value:
        factors = said[1:] if corners else said
        dtype, count = compute_dtype(e.out.dtype), len(output_size)
        sizes, lengths = tuple(meta(self).shape)[-count:], tuple(e.out.shape)[-count:]
        taps = []
        for i, (size, length) in enumerate(zip(sizes, lengths, strict=True)):
            factor = factors[i] if i < len(factors) else None
            taps.append(kernel(e, size, length, factor, *((said[0], dtype) if corners else ())))
        return _weighed(e, self, taps, dtype)

    return emit


def _floats_of_static_sizes(node: fx.Node, self: fx.Node, *said: Any, **named: Any) -> str | None:
    if not meta(self).dtype.is_floating_point:
        return f"of {meta(self).dtype}"
    if named or any(isinstance(each, fx.Node) for each in said):
        return "by symbolic factors"
    return _static_sizes(node, self)


for _rank in (1, 2, 3):
    rule(getattr(aten, f"upsample_nearest{_rank}d").default, kind="index", claim=_floats_of_static_sizes)(
        _resized(functools.partial(_nearest, middle=0.0), corners=False)
    )
    rule(
        getattr(aten, f"_upsample_nearest_exact{_rank}d").default,
        kind="index",
        claim=_floats_of_static_sizes,
    )(_resized(functools.partial(_nearest, middle=0.5), corners=False))
for _operator, _kernel in (
    (aten.upsample_linear1d, _linear),
    (aten.upsample_bilinear2d, _linear),
    (aten.upsample_trilinear3d, _linear),
    (aten.upsample_bicubic2d, _cubic),
):
    rule(_operator.default, kind="index", claim=_floats_of_static_sizes)(_resized(_kernel, corners=True))


# --- windows ---------------------------------------------------------------------------------------------------


@rule(aten.im2col.default, kind="index", claim=_static_sizes)
def im2col(
    e: Emitter,
    self: fx.Node,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """The windows of an image, each a column: what lies beyond the border is 0."""
    sizes, wide = tuple(meta(self).shape), compute_dtype(e.out.dtype)
    lead, places, inside, windows = list(sizes[:-2]), [], [], []
    for i, size in enumerate(sizes[-2:]):
        count = (size + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1
        offsets = e.along(e.indices(kernel_size[i], start=-padding[i], step=dilation[i]), 0, 2)
        starts = e.along(e.indices(count, step=stride[i]), 1, 2)
        at = reshaped(e, e.ops.add(offsets, starts), [kernel_size[i], count], [kernel_size[i] * count])
        held = _held(e, at, size)
        places.append(held)
        inside.append(e.ops.eq(at, held))
        windows += [kernel_size[i], count]
    flat = [windows[0] * windows[1], windows[2] * windows[3]]
    made = e.cast(at_grid(e, e.tensor(self), sizes, places, flat), e.out.dtype, wide)
    rank = len(sizes)
    seen = e.ops.logical_and(e.along(inside[0], rank - 2, rank), e.along(inside[1], rank - 1, rank))
    made = e.result(e.ops.where(seen, made, e.constant(0, wide)), wide)
    made = reshaped(e, made, [*lead, *flat], [*lead, *windows])
    made = e.ops.permute(made, [*range(rank - 2), *(rank - 2 + i for i in (0, 2, 1, 3))])
    return reshaped(e, made, [*lead, windows[0], windows[2], windows[1], windows[3]], e.out.shape)
