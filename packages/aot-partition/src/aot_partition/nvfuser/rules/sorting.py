"""Elements in order: nvFuser gives the places, and the values are gathered from them.

Its kernels for that include headers of a CUDA toolkit, so that they are taken only where there is one that fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive, sliced, unfolded

aten = torch.ops.aten


def _as_row(e: Emitter, x: fx.Node) -> tuple[Value, Sequence[Any]]:
    """A tensor with at least one dimension, and its sizes."""
    sizes = tuple(meta(x).shape)
    return e.aligned(unfolded(e, x), len(sizes), max(1, len(sizes))), sizes or (1,)


def _as_before(e: Emitter, x: fx.Node, *made: Value) -> tuple[Value, ...]:
    """Results without the dimension that `_as_row` added."""
    return made if meta(x).dim() else tuple(e.ops.squeeze(each, (0,)) for each in made)


@rule(aten.sort.default, aten.sort.stable, kind="scan")
def sort(
    e: Emitter, self: fx.Node, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    """Elements in order, equal ones as they were; and where they were."""
    value, sizes = _as_row(e, self)
    at = positive(dim, len(sizes))
    places = e.apart("argsort", value, at, descending, True)
    values, places = _as_before(e, self, e.ops.take_along_axis(value, places, at), places)
    return values, places


@rule(aten.argsort.default, aten.argsort.stable, kind="scan")
def argsort(
    e: Emitter, self: fx.Node, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> Value:
    """Where elements come from, in order; equal ones as they were."""
    value, sizes = _as_row(e, self)
    places = e.apart("argsort", value, positive(dim, len(sizes)), descending, True)
    return _as_before(e, self, places)[0]


@rule(aten.topk.default, kind="scan")
def topk(
    e: Emitter,
    self: fx.Node,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Value, Value]:
    """The largest or smallest elements, in order; and where they were."""
    value, sizes = _as_row(e, self)
    values, places = e.apart("topk", value, e.size_value(k), positive(dim, len(sizes)), largest, True)
    values, places = _as_before(e, self, values, places)
    return values, places


def _static_length(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    return "of symbolic sizes" if any(type(size) is not int for size in meta(self).shape) else None


@rule(aten.kthvalue.default, kind="scan", claim=_static_length)
def kth_value(e: Emitter, self: fx.Node, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest, counted from 1, and where it is; NaN counts as the largest."""
    value, sizes = _as_row(e, self)
    at = positive(dim, len(sizes))
    places = e.apart("argsort", value, at, False, True)
    made = _picked(e, value, places, sizes, at, k - 1)
    return _without(e, self, made, at, keepdim)


@rule(aten.median.dim, kind="scan", claim=_static_length)
def median(e: Emitter, self: fx.Node, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the two in the middle, and where it is; the first NaN, if there is one."""
    value, sizes = _as_row(e, self)
    at = positive(dim, len(sizes))
    places = e.apart("argsort", value, at, False, True)
    middle, place = _picked(e, value, places, sizes, at, (sizes[at] - 1) // 2)
    if meta(self).dtype.is_floating_point:
        rank = len(sizes)
        missing = e.ops.isnan(value)
        numbers = e.along(e.indices(sizes[at]), at, rank)
        first = e.ops.min(e.ops.where(missing, numbers, e.size_value(sizes[at])), (at,))
        first = e.ops.broadcast(first, tuple(i == at for i in range(rank)))
        any_missing = e.ops.lt(first, e.size_value(sizes[at]))
        wide = compute_dtype(meta(self).dtype)
        middle = e.cast(middle, meta(self).dtype, wide)
        middle = e.ops.where(any_missing, e.constant(math.nan, wide), middle)
        middle = e.cast(middle, wide, meta(self).dtype)
        place = e.ops.where(any_missing, first, place)
    return _without(e, self, (middle, place), at, keepdim)


@rule(aten.median.default, kind="scan", claim=_static_length)
def median_of_all(e: Emitter, self: fx.Node) -> Value:
    """The lower one of the two in the middle of all elements; NaN, if one is."""
    value, sizes = _as_row(e, self)
    count = math.prod(sizes)
    flat = value if len(sizes) == 1 else e.ops.reshape(value, (count,))
    places = e.apart("argsort", flat, 0, False, True)
    middle, _ = _picked(e, flat, places, (count,), 0, (count - 1) // 2)
    middle = e.ops.squeeze(middle, (0,))
    if not meta(self).dtype.is_floating_point:
        return middle
    wide = compute_dtype(meta(self).dtype)
    missing = e.ops.max(e.ops.cast(e.ops.isnan(flat), torch.int64), (0,))
    chosen = e.ops.where(
        e.ops.ne(missing, e.constant(0, torch.int64)),
        e.constant(math.nan, wide),
        e.cast(middle, meta(self).dtype, wide),
    )
    return e.result(chosen, wide)


@rule(aten.nanmedian.dim, kind="scan", claim=_static_length)
def median_of_numbers(e: Emitter, self: fx.Node, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the two in the middle of what is not NaN, and where it is; the first NaN, if all are."""
    if not meta(self).dtype.is_floating_point:
        return median(e, self, dim, keepdim)
    value, sizes = _as_row(e, self)
    at = positive(dim, len(sizes))
    places = e.apart("argsort", value, at, False, True)
    return _without(e, self, _middle_of_numbers(e, value, places, len(sizes), at), at, keepdim)


@rule(aten.nanmedian.default, kind="scan", claim=_static_length)
def median_of_all_numbers(e: Emitter, self: fx.Node) -> Value:
    """The lower one of the two in the middle of all elements that are not NaN; NaN, if all are."""
    if not meta(self).dtype.is_floating_point:
        return median_of_all(e, self)
    value, sizes = _as_row(e, self)
    flat = value if len(sizes) == 1 else e.ops.reshape(value, (math.prod(sizes),))
    places = e.apart("argsort", flat, 0, False, True)
    middle, _ = _middle_of_numbers(e, flat, places, 1, 0)
    made: Value = e.ops.squeeze(middle, (0,))
    return made


def _middle_of_numbers(e: Emitter, value: Value, places: Value, rank: int, dim: int) -> tuple[Value, Value]:
    """NaN are sorted behind the numbers, which are counted for where their middle is."""
    one = e.constant(1, torch.int64)
    numbers = e.ops.sum(e.ops.cast(e.ops.logical_not(e.ops.isnan(value)), torch.int64), (dim,))
    numbers = e.ops.broadcast(numbers, tuple(i == dim for i in range(rank)))
    half = e.ops.div(e.ops.sub(e.ops.maximum(numbers, one), one), e.constant(2, torch.int64))
    place = e.ops.take_along_axis(places, half, dim)
    return e.ops.take_along_axis(value, place, dim), place


def _picked(
    e: Emitter, value: Value, places: Value, sizes: Sequence[Any], dim: int, k: int
) -> tuple[Value, Value]:
    place = sliced(e, places, sizes, {dim: (k, k + 1)})
    return e.ops.take_along_axis(value, place, dim), place


def _without(
    e: Emitter, x: fx.Node, made: tuple[Value, Value], dim: int, keepdim: bool
) -> tuple[Value, Value]:
    """Results without the dimension along which one element was picked."""
    if keepdim and meta(x).dim():
        return made
    value, place = (e.ops.squeeze(each, (dim,)) for each in made)
    return value, place
