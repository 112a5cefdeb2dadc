"""Sums and products of all elements up to each. As for sorting, nvFuser needs headers of a CUDA toolkit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive, unfolded

aten = torch.ops.aten


def _scan(name: str) -> Callable[..., Value]:
    def emit(e: Emitter, self: fx.Node, dim: int, **_: Any) -> Value:
        dtype, rank = compute_dtype(e.out.dtype), meta(self).dim()
        value = e.cast(unfolded(e, self), meta(self).dtype, dtype)
        if not rank:
            return e.result(e.ops.set(value), dtype)
        return e.result(e.apart(name, value, positive(dim, rank)), dtype)

    return emit


rule(aten.cumsum.default, kind="scan")(_scan("cumsum"))
rule(aten.cumprod.default, kind="scan")(_scan("cumprod"))


def _running_extreme(name: str) -> Callable[..., tuple[Value, Value]]:
    def emit(e: Emitter, self: fx.Node, dim: int) -> tuple[Value, Value]:
        dtype, sizes = meta(self).dtype, meta(self).shape
        if not len(sizes):
            return e.ops.set(e.tensor(self)), e.full((), 0, torch.int64)
        dim, wide = positive(dim, len(sizes)), compute_dtype(dtype)
        value = e.cast(unfolded(e, self), dtype, wide)
        best = e.apart(name, value, dim)
        # The place is the last one so far at which the best was met.
        met = e.ops.eq(value, best)
        if wide.is_floating_point:
            met = e.ops.logical_or(met, e.ops.isnan(value))
        numbers = e.along(e.indices(sizes[dim]), dim, len(sizes))
        place = e.apart("cummax", e.ops.where(met, numbers, e.constant(0, torch.int64)), dim)
        return e.cast(best, wide, dtype), place

    return emit


def _not_bool(node: fx.Node, self: fx.Node, dim: int) -> str | None:
    return "of booleans" if meta(self).dtype is torch.bool else None


rule(aten.cummax.default, kind="scan", claim=_not_bool)(_running_extreme("cummax"))
rule(aten.cummin.default, kind="scan", claim=_not_bool)(_running_extreme("cummin"))
