"""Many elements made one.

nvFuser accumulates in the dtype that it is given, so that 16-bit floats are cast first, as eager kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import kind_of, rule
from aot_partition.nvfuser.rules.comparison import truth
from aot_partition.nvfuser.rules.shape import positive

aten, prims = torch.ops.aten, torch.ops.prims

Dims = Sequence[int] | int | None


def reduced_dims(x: fx.Node, dim: Dims, *, keepdim: bool) -> list[int]:
    """The dimensions that are reduced, counted from the front; all, if none is named.

    Of several that are kept, those of size 1 are left out: nvFuser takes them away and adds them again, and in a
    normalization then trips over its own broadcast.
    """
    sizes = meta(x).shape
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        dims = list(range(len(sizes)))
    else:
        named = [dim] if isinstance(dim, int) else dim
        dims = sorted({positive(each, len(sizes)) for each in named}) if sizes else []
    above_one = [each for each in dims if not (type(sizes[each]) is int and sizes[each] == 1)]
    return above_one if keepdim and above_one else dims


def reduced_operand(e: Emitter, x: fx.Node, dtype: torch.dtype) -> Value:
    """What is reduced, in a dtype: an input that several reductions take is given to each as a value of its own.

    nvFuser fills what lies beyond an input's end with the neutral element of its reduction, and asserts that there is
    only one.
    """
    value: Value = e.operand(x, dtype)
    shared = x.op == "placeholder" and sum(kind_of(user) == "reduction" for user in x.users) > 1
    return e.ops.set(value) if shared else value


def reduced(
    e: Emitter, name: str, value: Value, rank: int, dims: list[int], keepdim: bool, *said: Any
) -> Any:
    """Reduce, and put dimensions of size 1 in the place of those reduced where they are kept."""
    if not dims:
        return e.ops.set(value)
    made = e.ops(name, value, dims, *said)
    return with_kept_dims(e, made, rank, dims) if keepdim else made


def with_kept_dims(e: Emitter, made: Any, rank: int, dims: list[int]) -> Any:
    """Put dimensions of size 1 in the place of reduced ones."""
    kept = tuple(i in dims for i in range(rank))
    if isinstance(made, Value):
        return e.ops.broadcast(made, kept)
    return tuple(e.ops.broadcast(each, kept) for each in made)


@rule(aten.sum.default, aten.sum.dim_IntList, prims.sum.default, kind="reduction")
def sum_of(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    """The sum; of integers and booleans in int64."""
    return _accumulated(e, "sum", self, dim, keepdim)


def _accumulated(e: Emitter, name: str, x: fx.Node, dim: Dims, keepdim: bool) -> Value:
    """Add or multiply elements up in the dtype of the result. nvFuser makes int64 of int32 and bool by itself."""
    dtype, dims = compute_dtype(e.out.dtype), reduced_dims(x, dim, keepdim=keepdim)
    made = reduced(e, name, reduced_operand(e, x, dtype), meta(x).dim(), dims, keepdim)
    if dims and dtype in (torch.int32, torch.bool):
        made = e.cast(made, torch.int64, dtype)
    return e.result(made, dtype)


@rule(aten.mean.default, aten.mean.dim, kind="reduction")
def mean(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    """The mean."""
    dtype, dims = compute_dtype(e.out.dtype), reduced_dims(self, dim, keepdim=keepdim)
    made = reduced(e, "sum", reduced_operand(e, self, dtype), meta(self).dim(), dims, keepdim)
    return e.result(e.ops.truediv(made, element_count(e, self, dims)), dtype)


def element_count(e: Emitter, x: fx.Node, dims: list[int]) -> Value:
    """How many elements are reduced to one, as a float64 scalar."""
    count = e.product([meta(x).shape[i] for i in dims])
    if isinstance(count, Value):
        made: Value = e.ops.cast(count, torch.float64)
        return made
    return e.constant(count, torch.float64)


def _extreme(name: str) -> Callable[..., Value]:
    def emit(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False, **_: Any) -> Value:
        # Of booleans: 0 < 1.
        dtype = torch.int64 if e.out.dtype is torch.bool else compute_dtype(e.out.dtype)
        made = reduced(
            e,
            name,
            reduced_operand(e, self, dtype),
            meta(self).dim(),
            reduced_dims(self, dim, keepdim=keepdim),
            keepdim,
        )
        return e.ops.ne(made, e.constant(0, dtype)) if e.out.dtype is torch.bool else e.result(made, dtype)

    return emit


rule(aten.amax.default, aten.max.default, prims.amax.default, kind="reduction")(_extreme("max"))
rule(aten.amin.default, aten.min.default, prims.amin.default, kind="reduction")(_extreme("min"))


@rule(aten.prod.default, aten.prod.dim_int, prims.prod.default, kind="reduction")
def product(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False, **_: Any) -> Value:
    """The product; of integers and booleans in int64."""
    return _accumulated(e, "prod", self, dim, keepdim)


@rule(aten.any.default, aten.any.dim, aten.any.dims, kind="reduction")
def any_of(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False) -> Value:
    """Whether an element is not zero."""
    true = e.ops.cast(truth(e, self), torch.int64)
    made = reduced(e, "max", true, meta(self).dim(), reduced_dims(self, dim, keepdim=keepdim), keepdim)
    return e.ops.ne(made, e.constant(0, torch.int64))


@rule(aten.all.default, aten.all.dim, aten.all.dims, kind="reduction")
def all_of(e: Emitter, self: fx.Node, dim: Dims = None, keepdim: bool = False) -> Value:
    """Whether no element is zero."""
    true = e.ops.cast(truth(e, self), torch.int64)
    made = reduced(e, "min", true, meta(self).dim(), reduced_dims(self, dim, keepdim=keepdim), keepdim)
    return e.ops.ne(made, e.constant(0, torch.int64))


def _whole_correction(
    node: fx.Node, self: fx.Node, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> str | None:
    value = 1 if correction is None else correction
    if isinstance(value, fx.Node) or value != int(value):
        return f"with correction {value}: nvFuser takes whole numbers"
    if value < 0:
        return "with a negative correction"
    return None


@rule(aten.var.correction, kind="reduction", claim=_whole_correction)
def variance(
    e: Emitter, self: fx.Node, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    """The variance about the mean; infinite or NaN where the correction leaves no degree of freedom."""
    return _variance_and_mean(e, self, dim, correction, keepdim, e.out.dtype)[0]


@rule(aten.var_mean.correction, kind="reduction", claim=_whole_correction)
def variance_and_mean(
    e: Emitter, self: fx.Node, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    """The variance about the mean, and the mean."""
    return _variance_and_mean(e, self, dim, correction, keepdim, e.out[0].dtype)


def _variance_and_mean(
    e: Emitter, x: fx.Node, dim: Dims, correction: float | None, keepdim: bool, target: torch.dtype
) -> tuple[Value, Value]:
    dtype, dims, rank = compute_dtype(target), reduced_dims(x, dim, keepdim=keepdim), meta(x).dim()
    value = e.operand(x, dtype)
    if not rank:
        # One element: reduced along a dimension of size 1.
        value, dims = e.ops.broadcast(value, (True,)), [0]
    whole = 1 if correction is None else int(correction)
    both: Any = e.ops.var_mean(value, dims, whole, False)
    spread, middle = both
    if keepdim and rank:
        spread, middle = with_kept_dims(e, (spread, middle), rank, dims)
    return e.cast(spread, dtype, target), e.cast(middle, dtype, target)


def first_index(
    e: Emitter, value: Value, dtype: torch.dtype, sizes: Sequence[Any], dim: int, best: Value
) -> Value:
    """Along a dimension, the first index whose element is the best one, or NaN if that is."""
    rank = len(sizes)
    spread = with_kept_dims(e, best, rank, [dim])
    hit = e.ops.eq(value, spread)
    if dtype.is_floating_point:
        hit = e.ops.logical_or(hit, e.ops.isnan(value))
    places = e.along(e.indices(sizes[dim]), dim, rank)
    missed = e.size_value(sizes[dim])
    made: Value = e.ops.min(e.ops.where(hit, places, missed), (dim,))
    return made


def _arg_extreme(name: str) -> Callable[..., Value]:
    def emit(e: Emitter, self: fx.Node, dim: int | None = None, keepdim: bool = False) -> Value:
        sizes, dtype = tuple(meta(self).shape), _ordered_dtype(meta(self).dtype)
        value = reduced_operand(e, self, dtype)
        if not sizes:
            return e.full((), 0, torch.int64)
        if dim is None:
            flat = (math.prod(sizes),)
            value = value if len(sizes) == 1 else e.ops.reshape(value, e.shape(flat))
            place = first_index(e, value, dtype, flat, 0, e.ops(name, value, (0,)))
            return with_kept_dims(e, place, len(sizes), list(range(len(sizes)))) if keepdim else place
        dim = positive(dim, len(sizes))
        place = first_index(e, value, dtype, sizes, dim, e.ops(name, value, (dim,)))
        return with_kept_dims(e, place, len(sizes), [dim]) if keepdim else place

    return emit


rule(aten.argmax.default, kind="reduction")(_arg_extreme("max"))
rule(aten.argmin.default, kind="reduction")(_arg_extreme("min"))


def _ordered_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype is torch.bool else compute_dtype(dtype)


def _extreme_and_place(name: str) -> Callable[..., tuple[Value, Value]]:
    def emit(e: Emitter, self: fx.Node, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        sizes, source = tuple(meta(self).shape), meta(self).dtype
        if not sizes:
            return e.ops.set(e.tensor(self)), e.full((), 0, torch.int64)
        dtype, dim = _ordered_dtype(source), positive(dim, len(sizes))
        value = reduced_operand(e, self, dtype)
        best = e.ops(name, value, (dim,))
        place = first_index(e, value, dtype, sizes, dim, best)
        if keepdim:
            best, place = with_kept_dims(e, (best, place), len(sizes), [dim])
        if source is torch.bool:
            return e.ops.ne(best, e.constant(0, dtype)), place
        return e.cast(best, dtype, source), place

    return emit


rule(aten.max.dim, kind="reduction")(_extreme_and_place("max"))
rule(aten.min.dim, kind="reduction")(_extreme_and_place("min"))
