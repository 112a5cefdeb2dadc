"""Elements picked by an index that is a tensor.

Negative indices count from the end in torch and not in nvFuser: they are wrapped here. An index out of bounds is the
user's error, as it is in eager PyTorch, where it ends in an assertion on the device.
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
from aot_partition.nvfuser.rules.shape import positive, reshaped, selected

aten = torch.ops.aten


def _ranked(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    return None if meta(self).dim() else "of a tensor without dimensions"


def _plain_gather(
    node: fx.Node, self: fx.Node, dim: int, index: fx.Node, *, sparse_grad: bool = False
) -> str | None:
    return _ranked(node, self) or (None if meta(index).dim() else "by an index without dimensions")


@rule(aten.gather.default, kind="index", claim=_plain_gather)
def gather(e: Emitter, self: fx.Node, dim: int, index: fx.Node, *, sparse_grad: bool = False) -> Value:
    """Per element of an index, the element there along a dimension."""
    made: Value = e.ops.gather(e.tensor(self), e.tensor(index), positive(dim, meta(self).dim()))
    return made


def _like_gather(node: fx.Node, self: fx.Node, dim: int, index: fx.Node, *_: Any) -> str | None:
    return _plain_gather(node, self, dim, index)


@rule(aten.scatter.src, kind="index", claim=_like_gather)
def scatter(e: Emitter, self: fx.Node, dim: int, index: fx.Node, src: fx.Node) -> Value:
    """Elements laid where an index says."""
    source = e.tensor(src)
    if tuple(meta(src).shape) != tuple(meta(index).shape):
        zeros, ends = (0,) * meta(src).dim(), e.shape(meta(index).shape)
        source = e.ops.slice(source, zeros, ends, (1,) * meta(src).dim())
    made: Value = e.ops.scatter(e.tensor(self), e.tensor(index), source, positive(dim, meta(self).dim()))
    return made


@rule(aten.scatter.value, kind="index", claim=_like_gather)
def scatter_number(e: Emitter, self: fx.Node, dim: int, index: fx.Node, value: float) -> Value:
    """A number laid where an index says."""
    source = e.full(meta(index).shape, value, e.out.dtype)
    made: Value = e.ops.scatter(e.tensor(self), e.tensor(index), source, positive(dim, meta(self).dim()))
    return made


@rule(aten.index_select.default, kind="index", claim=_ranked)
def index_select(e: Emitter, self: fx.Node, dim: int, index: fx.Node) -> Value:
    """Along a dimension the elements at an index."""
    at = e.operand(index, meta(index).dtype, 1)
    return selected(e, e.tensor(self), at, positive(dim, meta(self).dim()))


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
    common = torch.broadcast_shapes(*(meta(each).shape for each in given.values()))
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


def _linear(
    e: Emitter, given: dict[int, fx.Node], sizes: Sequence[int], common: Sequence[Any]
) -> Value:
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


def _static_take(node: fx.Node, self: fx.Node, index: fx.Node) -> str | None:
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


def _fill_number(node: fx.Node, self: fx.Node, dim: int, index: fx.Node, value: Any) -> str | None:
    if isinstance(value, fx.Node):
        return "filled with the value of a tensor"
    return _ranked(node, self) or _static_take(node, self, index)


@rule(aten.index_fill.int_Scalar, kind="index", claim=_fill_number)
def index_fill(e: Emitter, self: fx.Node, dim: int, index: fx.Node, value: float) -> Value:
    """A number at some indices of a dimension: wherever one of them is."""
    sizes = meta(self).shape
    dim = positive(dim, len(sizes))
    at = wrapped(e, e.operand(index, torch.int64, 1), sizes[dim])
    places = e.ops.broadcast(e.indices(sizes[dim]), (False, True))
    hits = e.ops.eq(places, e.ops.broadcast(at, (True, False)))
    hit = e.ops.ne(e.ops.sum(e.ops.cast(hits, torch.int64), (1,)), e.constant(0, torch.int64))
    wide = compute_dtype(e.out.dtype)
    where = e.along(hit, dim, len(sizes))
    return e.result(e.ops.where(where, e.constant(value, wide), e.operand(self, wide)), wide)
