"""Tensors laid side by side, and room added around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive, selected, slice_bounds, sliced

aten = torch.ops.aten


def _parts(tensors: Sequence[fx.Node]) -> list[fx.Node]:
    """The tensors that count: torch lets one-dimensional tensors without elements lie anywhere."""
    return [each for each in tensors if meta(each).numel()]


@rule(aten.cat.default, kind="shape")
def cat(e: Emitter, tensors: Sequence[fx.Node], dim: int = 0) -> Value:
    """Tensors side by side along a dimension, in the dtype that they have in common."""
    dtype = e.out.dtype
    parts = [e.operand(each, dtype) for each in _parts(tensors)]
    made: Value = e.ops.cat(parts, positive(dim, e.out.dim())) if len(parts) > 1 else e.ops.set(parts[0])
    return made


def _constant_room(node: fx.Node, self: fx.Node, pad: Sequence[Any], value: Any = 0) -> str | None:
    if any(isinstance(each, fx.Node) for each in (*pad, value)):
        return "by symbolic numbers"
    if any(type(size) is not int for size in meta(self).shape) and any(each < 0 for each in pad):
        return "a part of a symbolic size"
    return None


@rule(aten.constant_pad_nd.default, kind="shape", claim=_constant_room)
def constant_pad(e: Emitter, self: fx.Node, pad: Sequence[int], value: float = 0) -> Value:
    """A number laid around, from the last dimension on; where room is negative, it is cut off."""
    sizes, made = meta(self).shape, e.tensor(self)
    rank = len(sizes)
    cuts: dict[int, tuple[Any, Any]] = {}
    for i in range(len(pad) // 2):
        dim, (before, after) = rank - 1 - i, pad[2 * i : 2 * i + 2]
        if before < 0 or after < 0:
            cuts[dim] = (max(0, -before), sizes[dim] - max(0, -after))
    if cuts:
        made = sliced(e, made, sizes, cuts)
    room = tuple(max(0, each) for each in pad)
    if any(room):
        return e.ops.pad(made, room, e.constant(value, e.out.dtype))
    return made if cuts else e.ops.set(made)


def _static_range(
    node: fx.Node,
    self: fx.Node,
    src: fx.Node,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> str | None:
    if any(type(size) is not int for size in meta(self).shape):
        return "of symbolic sizes"
    symbolic = any(isinstance(each, fx.Node) for each in (start, end, step))
    return "between symbolic bounds" if symbolic else None


@rule(aten.slice_scatter.default, kind="shape", claim=_static_range)
def slice_scatter(
    e: Emitter,
    self: fx.Node,
    src: fx.Node,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """A tensor with a range of a dimension replaced: what lies before, the new part, what lies behind."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    first, last = slice_bounds(sizes[dim], start, end)
    if step > 1:
        return _every_so_manieth(e, self, src, dim, first, last, step)
    before, after = {dim: (0, first)}, {dim: (last, sizes[dim])}
    new = e.expanded(
        e.operand(src, e.out.dtype), meta(src).shape, (*sizes[:dim], last - first, *sizes[dim + 1 :])
    )
    parts = [sliced(e, e.tensor(self), sizes, before)] if first else []
    parts.append(new)
    if last < sizes[dim]:
        parts.append(sliced(e, e.tensor(self), sizes, after))
    made: Value = e.ops.cat(parts, dim) if len(parts) > 1 else e.ops.set(new)
    return made


def _every_so_manieth(
    e: Emitter, self: fx.Node, src: fx.Node, dim: int, first: int, last: int, step: int
) -> Value:
    """A tensor with every ``step``-th index of a range replaced: where one is met, its element of the new part."""
    sizes, wide, zero = meta(self).shape, compute_dtype(e.out.dtype), e.constant(0, torch.int64)
    rank, count = len(sizes), -(-(last - first) // step)
    place, by = e.indices(sizes[dim], start=-first), e.constant(step, torch.int64)
    within = e.ops.logical_and(e.ops.ge(place, zero), e.ops.lt(place, e.constant(last - first, torch.int64)))
    hit = e.ops.logical_and(within, e.ops.eq(e.ops.remainder(place, by), zero))
    new = e.expanded(e.operand(src, e.out.dtype), meta(src).shape, (*sizes[:dim], count, *sizes[dim + 1 :]))
    new = selected(e, new, e.ops.where(hit, e.ops.div(place, by), zero), dim)
    chosen = e.along(hit, dim, rank)
    return e.result(e.ops.where(chosen, e.cast(new, e.out.dtype, wide), e.operand(self, wide)), wide)


def _static_sizes(node: fx.Node, self: fx.Node, src: fx.Node, dim: int, index: Any) -> str | None:
    if isinstance(index, fx.Node):
        return "at a symbolic index"
    return _static_range(node, self, src)


@rule(aten.select_scatter.default, kind="shape", claim=_static_sizes)
def select_scatter(e: Emitter, self: fx.Node, src: fx.Node, dim: int, index: int) -> Value:
    """A tensor with one index of a dimension replaced."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    place = e.along(e.indices(sizes[dim]), dim, len(sizes))
    new = e.operand(src, e.out.dtype)
    new = e.ops.broadcast(new, tuple(i == dim for i in range(len(sizes))))
    hit = e.ops.eq(place, e.constant(index % sizes[dim], torch.int64))
    wide = compute_dtype(e.out.dtype)
    old = e.operand(self, wide)
    return e.result(e.ops.where(hit, e.cast(new, e.out.dtype, wide), old), wide)


def _static_square(node: fx.Node, self: fx.Node, src: fx.Node, *_: Any) -> str | None:
    return _static_range(node, self, src)


@rule(aten.diagonal_scatter.default, kind="shape", claim=_static_square)
def diagonal_scatter(
    e: Emitter, self: fx.Node, src: fx.Node, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """A tensor with a diagonal of two dimensions replaced: what lies there is read where rows meet columns."""
    sizes = meta(self).shape
    rank, wide = len(sizes), compute_dtype(e.out.dtype)
    dim1, dim2 = positive(dim1, rank), positive(dim2, rank)
    rows, columns = (e.along(e.indices(sizes[dim]), dim, rank) for dim in (dim1, dim2))
    hit = e.ops.eq(e.ops.add(rows, e.constant(offset, torch.int64)), columns)
    # The new elements, their last dimension laid along the rows, as far as the diagonal reaches, and zeros beyond.
    new, length = e.operand(src, wide), meta(src).shape[-1]
    before = max(0, -offset)
    room = (before, sizes[dim1] - before - length)
    if any(room):
        new = e.ops.pad(new, room, e.constant(0, wide))
    others = [i for i in range(rank) if i not in (dim1, dim2)]
    order = sorted(range(rank - 1), key=lambda i: (*others, dim1)[i])
    if order != list(range(rank - 1)):
        new = e.ops.permute(new, order)
    new = e.ops.broadcast(new, tuple(i == dim2 for i in range(rank)))
    return e.result(e.ops.where(hit, new, e.operand(self, wide)), wide)
