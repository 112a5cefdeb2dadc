"""The same elements under other indices: views, and copies that only move.

nvFuser's ``slice`` takes steps of 1 alone, and nothing turns a dimension around; both are said as a selection by a
computed index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.expansions import reduced_while_repeated
from aot_partition.nvfuser.rules import rule

aten, prims = torch.ops.aten, torch.ops.prims

END = torch.iinfo(torch.int64).max


def positive(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim % rank if rank else 0


def sliced(e: Emitter, value: Value, sizes: Sequence[Any], cuts: dict[int, tuple[Any, Any]]) -> Value:
    """Cut a tensor of some sizes: per dimension of ``cuts`` from a first index up to an end."""
    starts = [e.sizes(cuts[i][0]) if i in cuts else 0 for i in range(len(sizes))]
    ends = [e.sizes(cuts[i][1] if i in cuts else size) for i, size in enumerate(sizes)]
    made: Value = e.ops.slice(value, starts, ends, (1,) * len(sizes))
    return made


def selected(e: Emitter, value: Value, index: Value, dim: int) -> Value:
    """Take the elements at a one-dimensional index."""
    made: Value = e.ops.index_select(value, index, dim)
    return made


def unfolded(e: Emitter, x: fx.Node) -> Value:
    """Return an operand whose elements all lie at places of their own.

    What is in a segment of its own (scans, sorts, gathers) may not be expanded: nvFuser writes it to memory without
    its repetitions, or with, and reads it the other way.
    """
    value: Value = e.tensor(x)
    dtype = meta(x).dtype
    if not _may_be_expanded(x):
        return value
    wide = compute_dtype(dtype)
    ones = e.full(meta(x).shape, 1, wide)
    if dtype is torch.bool:
        both: Value = e.ops.logical_and(value, ones)
        return both
    # Times one: plus zero would lose the sign of a zero.
    return e.cast(e.ops.mul(e.cast(value, dtype, wide), ones), wide, dtype)


def _may_be_expanded(x: fx.Node) -> bool:
    pending, seen = [x], {x}
    while pending:
        node = pending.pop()
        value = meta(node)
        if node.op != "call_function":
            if isinstance(value, torch.Tensor) and 0 in value.stride():
                return True
            continue
        if node.target in _EXPANDING:
            return True
        new = [each for each in node.all_input_nodes if each not in seen]
        seen.update(new)
        pending += new
    return False


_EXPANDING = {aten.expand.default, aten.expand_copy.default, prims.broadcast_in_dim.default}


@rule(aten.permute.default, aten.permute_copy.default, kind="shape")
def permute(e: Emitter, self: fx.Node, dims: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return _permuted(e, self, [positive(dim, meta(self).dim()) for dim in dims])


@rule(aten.t.default, kind="shape")
def t(e: Emitter, self: fx.Node) -> Value:
    """A matrix turned over; a vector as it is."""
    return _permuted(e, self, list(reversed(range(meta(self).dim()))))


@rule(aten.transpose.int, kind="shape")
def transpose(e: Emitter, self: fx.Node, dim0: int, dim1: int) -> Value:
    """Two dimensions exchanged."""
    rank = meta(self).dim()
    order = list(range(rank))
    if rank:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permuted(e, self, order)


@rule(prims.transpose.default, kind="shape")
def prims_transpose(e: Emitter, self: fx.Node, dims: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return _permuted(e, self, list(dims))


def _permuted(e: Emitter, x: fx.Node, order: list[int]) -> Value:
    identity = order == list(range(len(order)))
    made: Value = e.ops.set(e.tensor(x)) if identity else e.ops.permute(e.tensor(x), order)
    return made


@rule(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.view_copy.default,
    prims.view_of.default,
    kind="shape",
)
def view(e: Emitter, self: fx.Node, size: Any = None) -> Value:
    """The same elements in row-major order under another shape."""
    return reshaped(e, e.tensor(self), meta(self).shape, e.out.shape)


def reshaped(e: Emitter, value: Value, sizes: Sequence[Any], target: Sequence[Any]) -> Value:
    """Reshape a tensor of some sizes.

    Dimensions of size 1 are taken away before and added afterwards: one that comes out of nvFuser's ``reshape`` is
    none that could be broadcast.
    """
    if tuple(sizes) == tuple(target):
        made: Value = e.ops.set(value)
        return made
    core, wanted = _without_ones(sizes), _without_ones(target)
    if len(core) < len(sizes):
        value = e.ops.squeeze(value, tuple(i for i, size in enumerate(sizes) if _is_one(size)))
    if core != wanted:
        value = e.ops.reshape(value, e.shape(wanted))
    if len(wanted) < len(target):
        value = e.ops.broadcast(value, tuple(map(_is_one, target)))
    return value


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _without_ones(sizes: Sequence[Any]) -> list[Any]:
    return [size for size in sizes if not _is_one(size)]


@rule(aten.expand.default, aten.expand_copy.default, kind="shape", claim=reduced_while_repeated)
def expand(e: Emitter, self: fx.Node, size: Sequence[Any], implicit: bool = False) -> Value:
    """Dimensions of size 1 repeated, others added in front."""
    if tuple(meta(self).shape) == tuple(e.out.shape):
        made: Value = e.ops.set(e.tensor(self))
        return made
    return e.expanded(e.tensor(self), meta(self).shape, e.out.shape)


@rule(prims.broadcast_in_dim.default, kind="shape", claim=reduced_while_repeated)
def broadcast_in_dim(
    e: Emitter, a: fx.Node, shape: Sequence[Any], broadcast_dimensions: Sequence[int]
) -> Value:
    """Dimensions laid at places of a larger shape, and repeated."""
    rank = len(e.out.shape)
    value = e.tensor(a)
    if len(broadcast_dimensions) < rank:
        value = e.ops.broadcast(value, tuple(i not in broadcast_dimensions for i in range(rank)))
    before = [1] * rank
    for i, place in enumerate(broadcast_dimensions):
        before[place] = meta(a).shape[i]
    if tuple(before) == tuple(e.out.shape):
        made: Value = e.ops.set(value)
        return made
    return e.expanded(value, before, e.out.shape)


@rule(aten.unsqueeze.default, kind="shape")
def unsqueeze(e: Emitter, self: fx.Node, dim: int) -> Value:
    """A dimension of size 1 more."""
    rank = e.out.dim()
    made: Value = e.ops.broadcast(e.tensor(self), tuple(i == positive(dim, rank) for i in range(rank)))
    return made


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, kind="shape")
def squeeze(e: Emitter, self: fx.Node, dim: int | Sequence[int] | None = None) -> Value:
    """Without the dimensions of size 1, or those of them that are named."""
    sizes = meta(self).shape
    if dim is None:
        named: Iterable[int] = range(len(sizes))
    else:
        named = [positive(each, len(sizes)) for each in ([dim] if isinstance(dim, int) else dim)]
    gone = tuple(i for i in sorted(set(named)) if i < len(sizes) and _is_one(sizes[i]))
    made: Value = e.ops.squeeze(e.tensor(self), gone) if gone else e.ops.set(e.tensor(self))
    return made


@rule(prims.squeeze.default, kind="shape")
def prims_squeeze(e: Emitter, a: fx.Node, dimensions: Sequence[int]) -> Value:
    """Without some dimensions of size 1."""
    return squeeze(e, a, dimensions)


def _static_index(node: fx.Node, self: fx.Node, dim: int, index: Any) -> str | None:
    return "at a symbolic index" if isinstance(index, fx.Node) else None


@rule(aten.select.int, aten.select_copy.int, kind="shape", claim=_static_index)
def select(e: Emitter, self: fx.Node, dim: int, index: int) -> Value:
    """One index of a dimension."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    start = index if index >= 0 else sizes[dim] + index
    made: Value = e.ops.squeeze(sliced(e, e.tensor(self), sizes, {dim: (start, start + 1)}), (dim,))
    return made


def slice_bounds(size: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Bounds of a slice of a dimension: counted from the front, and within it."""
    if type(size) is int:
        first, last, _ = slice(start, end).indices(size)
        return first, max(first, last)
    start = 0 if start is None else start
    end = size if end is None or end >= END else end
    return (start if start >= 0 else size + start), (end if end >= 0 else size + end)


def _within_known_size(
    node: fx.Node, self: fx.Node, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str | None:
    if any(isinstance(each, fx.Node) for each in (start, end, step)):
        return "between symbolic bounds"
    size = meta(self).shape[positive(dim, meta(self).dim())]
    cut = start not in (None, 0) or (end is not None and end < END)
    if type(size) is not int and (step != 1 or cut):
        return "a part of a symbolic size"
    return None


@rule(aten.slice.Tensor, aten.slice_copy.Tensor, kind="shape", claim=_within_known_size)
def slice_of(
    e: Emitter, self: fx.Node, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """A range of a dimension; with steps, a selection."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    if tuple(sizes) == tuple(e.out.shape):
        made: Value = e.ops.set(e.tensor(self))
        return made
    first, last = slice_bounds(sizes[dim], start, end)
    if step == 1:
        return sliced(e, e.tensor(self), sizes, {dim: (first, last)})
    return selected(e, e.tensor(self), e.indices(e.out.shape[dim], start=first, step=step), dim)


def _static_sizes(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    symbolic = any(type(size) is not int for size in meta(self).shape)
    return "of symbolic sizes" if symbolic else None


@rule(aten.split_with_sizes.default, aten.split.Tensor, kind="shape", claim=_static_sizes)
def split(e: Emitter, self: fx.Node, split_sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    """A dimension cut into consecutive parts."""
    sizes, start, parts = meta(self).shape, 0, []
    dim = positive(dim, len(sizes))
    for part in e.out:
        end = start + part.shape[dim]
        parts.append(sliced(e, e.tensor(self), sizes, {dim: (start, end)}))
        start = end
    return tuple(parts)


@rule(aten.unbind.int, aten.unbind_copy.int, kind="shape", claim=_static_sizes)
def unbind(e: Emitter, self: fx.Node, dim: int = 0) -> tuple[Value, ...]:
    """All indices of a dimension, one by one."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    cut = [sliced(e, e.tensor(self), sizes, {dim: (i, i + 1)}) for i in range(sizes[dim])]
    return tuple(e.ops.squeeze(each, (dim,)) for each in cut)


@rule(aten.flip.default, prims.rev.default, kind="index", claim=_static_sizes)
def flip(e: Emitter, self: fx.Node, dims: Sequence[int]) -> Value:
    """Dimensions turned around."""
    sizes, made = meta(self).shape, e.tensor(self)
    turned = sorted({positive(dim, len(sizes)) for dim in dims}) if len(sizes) else []
    for dim in turned:
        if sizes[dim] > 1:
            made = selected(e, made, e.indices(sizes[dim], start=sizes[dim] - 1, step=-1), dim)
    return made if made is not e.tensor(self) else e.ops.set(made)


@rule(aten.roll.default, kind="shape", claim=_static_sizes)
def roll(e: Emitter, self: fx.Node, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Dimensions moved on, what leaves at one end coming back at the other; without any named, all as one."""
    sizes, made = meta(self).shape, e.tensor(self)
    if not len(sizes):
        return e.ops.set(made)
    if not dims:
        flat = [math.prod(sizes)]
        rolled = _rolled(e, reshaped(e, made, sizes, flat), flat, 0, shifts[0])
        return reshaped(e, rolled, flat, sizes)
    made = e.ops.set(made)
    for dim, shift in zip(dims, shifts, strict=True):
        made = _rolled(e, made, sizes, positive(dim, len(sizes)), shift)
    return made


def _rolled(e: Emitter, value: Value, sizes: Sequence[int], dim: int, shift: int) -> Value:
    size = sizes[dim]
    if not shift % size:
        return value
    cut = size - shift % size
    behind = sliced(e, value, sizes, {dim: (cut, size)})
    made: Value = e.ops.cat([behind, sliced(e, value, sizes, {dim: (0, cut)})], dim)
    return made


@rule(aten.diagonal.default, aten.diagonal_copy.default, kind="index", claim=_static_sizes)
def diagonal(e: Emitter, self: fx.Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of two dimensions, laid last: every so-manieth element of both as one."""
    sizes = meta(self).shape
    dim1, dim2 = positive(dim1, len(sizes)), positive(dim2, len(sizes))
    others = [i for i in range(len(sizes)) if i not in (dim1, dim2)]
    order = [*others, dim1, dim2]
    turned = e.tensor(self) if order == list(range(len(sizes))) else e.ops.permute(e.tensor(self), order)
    rows, columns = sizes[dim1], sizes[dim2]
    kept = [sizes[i] for i in others]
    flat = reshaped(e, turned, [*kept, rows, columns], [*kept, rows * columns])
    first = offset if offset >= 0 else -offset * columns
    index = e.indices(e.out.shape[-1], start=first, step=columns + 1)
    return selected(e, flat, index, len(kept))
