"""Elements picked by an index that is a tensor.

Negative indices count from the end in torch and not in nvFuser: they are wrapped here. An index out of bounds is the
user's error, as it is in eager PyTorch, where it ends in an assertion on the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive, reshaped, selected, sliced, unfolded

aten = torch.ops.aten


def _row(e: Emitter, x: fx.Node) -> Value:
    """A tensor with at least one dimension, and places of its own for all elements."""
    rank = meta(x).dim()
    return e.aligned(unfolded(e, x), rank, max(1, rank))


def _like(e: Emitter, made: Value) -> Value:
    """A result without the dimension that `_row` added."""
    return made if e.out.dim() else e.ops.squeeze(made, (0,))


def scattered(e: Emitter, count: Any, dtype: torch.dtype, index: Value, source: Value) -> Value:
    """Lay elements into a row of zeros where an index says, in a segment of its own.

    nvFuser scatters into no tensor that was reshaped, and can't put a reshape beside it in order.
    """
    apart = [e.ops.segment_set(each) for each in (e.full((count,), 0, dtype), index, source)]
    made: Value = e.ops.segment_set(e.ops.scatter(*apart, 0))
    return made


def replaced(e: Emitter, x: fx.Node, index: Value, source: Value, count: Any) -> Value:
    """Replace ``count`` elements of a tensor, at places in the row of them all: they are chosen where any was laid."""
    dtype, wide = e.out.dtype, compute_dtype(e.out.dtype)
    sizes = tuple(meta(x).shape)
    total = math.prod(sizes)
    new = reshaped(e, scattered(e, total, dtype, index, source), (total,), sizes)
    hit = scattered(e, total, torch.bool, index, e.full((count,), True, torch.bool))
    hit = reshaped(e, hit, (total,), sizes)
    return e.result(e.ops.where(hit, e.cast(new, dtype, wide), e.operand(x, wide)), wide)


@rule(aten.gather.default, kind="index")
def gather(e: Emitter, self: fx.Node, dim: int, index: fx.Node, *, sparse_grad: bool = False) -> Value:
    """Per element of an index, the element there along a dimension."""
    return _like(e, e.ops.gather(_row(e, self), _row(e, index), positive(dim, meta(self).dim())))


def _static_scatter(node: fx.Node, self: fx.Node, dim: int, index: fx.Node, source: Any) -> str | None:
    known = all(type(size) is int for size in (*meta(self).shape, *meta(index).shape))
    return None if known or _is_one_each(self, dim, index) else "of symbolic sizes"


def _is_one_each(self: fx.Node, dim: int, index: fx.Node) -> bool:
    """Tell whether an index says one place for each row along a dimension."""
    sizes, at = tuple(meta(self).shape) or (1,), tuple(meta(index).shape) or (1,)
    dim = positive(dim, len(sizes))
    return at[dim] == 1 and (*at[:dim], *at[dim + 1 :]) == (*sizes[:dim], *sizes[dim + 1 :])


@rule(aten.scatter.src, kind="index", claim=_static_scatter)
def scatter(e: Emitter, self: fx.Node, dim: int, index: fx.Node, src: fx.Node) -> Value:
    """Elements laid where an index says."""
    source, sizes = _row(e, src), meta(src).shape or (1,)
    at = meta(index).shape or (1,)
    if tuple(sizes) != tuple(at):
        source = sliced(e, source, sizes, {i: (0, size) for i, size in enumerate(at)})
    return _laid(e, self, dim, index, source)


@rule(aten.scatter.value, kind="index", claim=_static_scatter)
def scatter_number(e: Emitter, self: fx.Node, dim: int, index: fx.Node, value: float) -> Value:
    """A number laid where an index says."""
    return _laid(e, self, dim, index, e.full(meta(index).shape or (1,), value, e.out.dtype))


def _laid(e: Emitter, self: fx.Node, dim: int, index: fx.Node, source: Value) -> Value:
    """Lay elements of an index's shape where it says along a dimension."""
    sizes, at, dtype = tuple(meta(self).shape) or (1,), tuple(meta(index).shape) or (1,), e.out.dtype
    dim, rank = positive(dim, len(sizes)), len(sizes)
    place = e.cast(_row(e, index), meta(index).dtype, torch.int64)
    if _is_one_each(self, dim, index):
        # As in the gradient of a loss of classes: a comparison, which fuses with what stands beside it.
        wide = compute_dtype(dtype)
        hit = e.ops.eq(e.along(e.indices(sizes[dim]), dim, rank), place)
        old = e.cast(_row(e, self), dtype, wide)
        return _like(e, e.result(e.ops.where(hit, e.cast(source, dtype, wide), old), wide))
    steps = [math.prod(sizes[i + 1 :]) for i in range(rank)]
    place = e.ops.mul(place, e.constant(steps[dim], torch.int64))
    for i in range(rank):
        if i != dim:
            place = e.ops.add(place, e.along(e.indices(at[i], step=steps[i]), i, rank))
    count = math.prod(at)
    place, source = (_flat(e, each, at) for each in (place, source))
    return replaced(e, self, place, source, count)


@rule(aten.index_select.default, kind="index")
def index_select(e: Emitter, self: fx.Node, dim: int, index: fx.Node) -> Value:
    """Along a dimension the elements at an index."""
    return _like(e, selected(e, _row(e, self), _row(e, index), positive(dim, meta(self).dim())))


@rule(aten.embedding.default, kind="index")
def embedding(
    e: Emitter,
    weight: fx.Node,
    indices: fx.Node,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Rows of a table."""
    table, at = meta(weight), meta(indices)
    rows = selected(e, e.tensor(weight), _flat(e, e.tensor(indices), at.shape), 0)
    return reshaped(e, rows, (math.prod(at.shape), *table.shape[1:]), e.out.shape)


def _flat(e: Emitter, value: Value, sizes: Sequence[Any]) -> Value:
    return value if len(sizes) == 1 else reshaped(e, value, sizes, (math.prod(sizes),))


def _integer_indices(node: fx.Node, self: fx.Node, indices: Sequence[fx.Node | None]) -> str | None:
    given = [meta(each) for each in indices if each is not None]
    if any(each.dtype not in (torch.int64, torch.int32) for each in given):
        return "by a mask"
    if any(type(meta(self).shape[i]) is not int for i, each in enumerate(indices) if each is not None):
        return "of symbolic sizes"
    return None


@rule(aten.index.Tensor, aten._unsafe_index.Tensor, kind="index", claim=_integer_indices)
def index(e: Emitter, self: fx.Node, indices: Sequence[fx.Node | None]) -> Value:
    """Elements at the indices of several dimensions together: these are made one, and so are their indices."""
    sizes = meta(self).shape
    given = {i: each for i, each in enumerate(indices) if each is not None}
    kept = [i for i in range(len(sizes)) if i not in given]
    common = _broadcast(meta(each).shape for each in given.values())
    # Where indexed dimensions lie apart, their common shape comes first; else it stays where they were.
    adjacent = list(given) == list(range(min(given), max(given) + 1))
    front = [i for i in kept if i < min(given)] if adjacent else []
    back = [i for i in kept if i not in front]
    order = [*front, *given, *back]
    value = e.tensor(self)
    if order != list(range(len(sizes))):
        value = e.ops.permute(value, order)
    count = math.prod(sizes[i] for i in given)
    before = [sizes[i] for i in order]
    merged = [*(sizes[i] for i in front), count, *(sizes[i] for i in back)]
    if len(given) > 1:
        value = reshaped(e, value, before, merged)
    linear = _linear(e, given, sizes, common)
    made = selected(e, value, _flat(e, linear, common) if common else e.aligned(linear, 0, 1), len(front))
    flat = [*merged[: len(front)], math.prod(common), *merged[len(front) + 1 :]]
    return reshaped(e, made, flat, e.out.shape)


def _broadcast(shapes: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    common: tuple[Any, ...] = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return common


def _linear(e: Emitter, given: dict[int, fx.Node], sizes: Sequence[int], common: Sequence[Any]) -> Value:
    linear: Value | None = None
    for i, each in given.items():
        at = e.operand(each, torch.int64)
        at = e.expanded(wrapped(e, at, sizes[i]), meta(each).shape, common)
        if linear is not None:
            at = e.ops.add(e.ops.mul(linear, e.constant(sizes[i], torch.int64)), at)
        linear = at
    assert linear is not None
    return linear


def wrapped(e: Emitter, index: Value, size: Any) -> Value:
    """Count negative indices from the end."""
    negative = e.ops.lt(index, e.constant(0, torch.int64))
    made: Value = e.ops.where(negative, e.ops.add(index, e.size_value(size)), index)
    return made


def _static_take(node: fx.Node, self: fx.Node, *_: Any) -> str | None:
    return "of symbolic sizes" if any(type(size) is not int for size in meta(self).shape) else None


@rule(aten.take.default, kind="index", claim=_static_take)
def take(e: Emitter, self: fx.Node, index: fx.Node) -> Value:
    """Elements of all dimensions as one."""
    source, at = meta(self), meta(index)
    total = source.numel()
    flat = e.aligned(e.tensor(self), 0, 1) if not source.dim() else _flat(e, e.tensor(self), source.shape)
    place = wrapped(e, e.operand(index, torch.int64), total)
    chosen = selected(e, flat, e.aligned(place, 0, 1) if not at.dim() else _flat(e, place, at.shape), 0)
    return reshaped(e, chosen, (at.numel(),), e.out.shape)


def _static_fill(node: fx.Node, self: fx.Node, dim: int, index: fx.Node, value: Any) -> str | None:
    return _static_take(node, self, index)


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, kind="index", claim=_static_fill)
def index_fill(e: Emitter, self: fx.Node, dim: int, index: fx.Node, value: Any) -> Value:
    """A number at some indices of a dimension: wherever one of them is."""
    sizes, wide = meta(self).shape or (1,), compute_dtype(e.out.dtype)
    dim, rank = positive(dim, len(sizes)), len(sizes)
    at = wrapped(e, e.operand(index, torch.int64, 1), sizes[dim])
    hits = e.ops.eq(e.ops.broadcast(e.indices(sizes[dim]), (False, True)), e.ops.broadcast(at, (True, False)))
    hit = e.ops.ne(e.ops.sum(e.ops.cast(hits, torch.int64), (1,)), e.constant(0, torch.int64))
    old = e.cast(_row(e, self), e.out.dtype, wide)
    made = e.ops.where(e.along(hit, dim, rank), e.operand(value, wide, rank), old)
    return _like(e, e.result(made, wide))


def _static_put(
    node: fx.Node, self: fx.Node, indices: Sequence[fx.Node | None], values: fx.Node, accumulate: bool = False
) -> str | None:
    if accumulate:
        return "added to what is there"
    if any(type(size) is not int for size in meta(self).shape):
        return "of symbolic sizes"
    return _integer_indices(node, self, indices)


@rule(aten.index_put.default, kind="index", claim=_static_put)
def index_put(
    e: Emitter, self: fx.Node, indices: Sequence[fx.Node | None], values: fx.Node, accumulate: bool = False
) -> Value:
    """Values laid at the indices of several dimensions together: each at its place in the row of all elements."""
    sizes = tuple(meta(self).shape)
    given = {i: each for i, each in enumerate(indices) if each is not None}
    common = _broadcast(meta(each).shape for each in given.values())
    others = [i for i in range(len(sizes)) if i not in given]
    # As in what is indexed: where indexed dimensions lie apart, their common shape comes first.
    adjacent = list(given) == list(range(min(given), max(given) + 1))
    front = min(given) if adjacent else 0
    kept = [sizes[i] for i in others]
    laid = (*kept[:front], *common, *kept[front:])
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    place = e.along(e.indices(1), 0, max(1, len(laid)))
    for i, each in given.items():
        at = e.expanded(wrapped(e, e.operand(each, torch.int64), sizes[i]), meta(each).shape, common)
        at = e.ops.mul(at, e.constant(steps[i], torch.int64))
        if laid != common or not laid:
            new = tuple(not front <= j < front + len(common) for j in range(max(1, len(laid))))
            at = e.ops.broadcast(at, new)
        place = e.ops.add(place, at)
    for position, i in enumerate(others):
        j = position if position < front else position + len(common)
        place = e.ops.add(place, e.along(e.indices(sizes[i], step=steps[i]), j, len(laid)))
    count = math.prod(laid)
    source = e.expanded(e.operand(values, e.out.dtype), meta(values).shape, laid or (1,))
    source, place = (_flat(e, each, laid or (1,)) for each in (source, place))
    return replaced(e, self, place, source, count)


def _dense(node: fx.Node, self: fx.Node, size: Any, stride: Any, storage_offset: Any = None) -> str | None:
    source = meta(self)
    numbers = (*source.shape, *source.stride(), *size, *stride, storage_offset or 0, source.storage_offset())
    if any(type(each) is not int for each in numbers):
        return "of symbolic sizes"
    if not source.is_contiguous() or source.storage_offset():
        return "of memory with gaps"
    last = (storage_offset or 0) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return "beyond the tensor" if last >= source.numel() else None


@rule(aten.as_strided.default, aten.as_strided_copy.default, kind="index", claim=_dense)
def as_strided(
    e: Emitter, self: fx.Node, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """Elements at steps of memory: a selection by the place that is computed from the steps."""
    flat = _flat(e, _row(e, self), meta(self).shape or (1,))
    place = _places(e, size, stride, storage_offset)
    return reshaped(e, selected(e, flat, place, 0), (math.prod(size),), e.out.shape)


def _places(e: Emitter, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> Value:
    """Where in memory the elements lie that steps of it lead to, in a row."""
    rank = max(1, len(size))
    place = e.ops.broadcast(e.indices(1, start=storage_offset or 0), tuple(i < rank - 1 for i in range(rank)))
    for i, (length, step) in enumerate(zip(size, stride, strict=True)):
        place = e.ops.add(place, e.along(e.indices(length, step=step), i, rank))
    return _flat(e, place, size or (1,))


def _dense_without_overlap(
    node: fx.Node, self: fx.Node, src: fx.Node, size: Any, stride: Any, storage_offset: Any = None
) -> str | None:
    if reason := _dense(node, self, size, stride, storage_offset):
        return reason
    # Sorted by step, each dimension has to begin behind the end of those further in.
    end = 1
    for step, length in sorted(
        (step, length) for length, step in zip(size, stride, strict=True) if length > 1
    ):
        if step < end:
            return "at places that overlap"
        end = step * (length - 1) + end
    return None


@rule(aten.as_strided_scatter.default, kind="index", claim=_dense_without_overlap)
def as_strided_scatter(
    e: Emitter,
    self: fx.Node,
    src: fx.Node,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """A tensor with the elements at steps of its memory replaced."""
    new = _flat(e, _row(e, src), tuple(size) or (1,))
    place = _places(e, size, stride, storage_offset)
    return replaced(e, self, place, new, math.prod(size))


def _static_room(node: fx.Node, self: fx.Node, indices: fx.Node, *said: Any) -> str | None:
    if any(isinstance(each, fx.Node) for each in _compat.pytree.tree_leaves(said)):
        return "of symbolic sizes"
    return _static_take(node, self, indices)


@rule(aten.max_unpool2d.default, aten.max_unpool3d.default, kind="index", claim=_static_room)
def max_unpool(e: Emitter, self: fx.Node, indices: fx.Node, output_size: Sequence[int], *_: Any) -> Value:
    """Elements laid back to the places of a channel that they were pooled from, and zeros elsewhere."""
    sizes, count = tuple(meta(self).shape), len(output_size)
    channels, inside, room = math.prod(sizes[:-count]), math.prod(sizes[-count:]), math.prod(output_size)
    # All channels in a row, and each a part of it.
    at = reshaped(e, e.tensor(indices), sizes, (channels, inside))
    if channels > 1:
        at = e.ops.add(at, e.ops.broadcast(e.indices(channels, step=room), (False, True)))
    at = reshaped(e, at, (channels, inside), (channels * inside,))
    value = reshaped(e, e.tensor(self), sizes, (channels * inside,))
    made = scattered(e, channels * room, e.out.dtype, at, value)
    return reshaped(e, made, (channels * room,), e.out.shape)


@rule(aten.unfold.default, aten.unfold_copy.default, kind="index", claim=_static_take)
def unfold(e: Emitter, self: fx.Node, dimension: int, size: int, step: int) -> Value:
    """Windows of a dimension, laid last: a selection by the places of all windows in a row."""
    sizes = tuple(meta(self).shape)
    if not sizes:
        return e.aligned(e.tensor(self), 0, 1)
    dim, rank = positive(dimension, len(sizes)), len(sizes)
    windows = e.out.shape[dim]
    starts = e.ops.broadcast(e.indices(windows, step=step), (False, True))
    places = _flat(e, e.ops.add(starts, e.ops.broadcast(e.indices(size), (True, False))), (windows, size))
    made = selected(e, e.tensor(self), places, dim)
    split = (*sizes[:dim], windows, size, *sizes[dim + 1 :])
    made = reshaped(e, made, (*sizes[:dim], windows * size, *sizes[dim + 1 :]), split)
    order = [i for i in range(rank + 1) if i != dim + 1] + [dim + 1]
    return made if order == list(range(rank + 1)) else e.ops.permute(made, order)
