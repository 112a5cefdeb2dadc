"""Sums and products of all elements up to each. As for sorting, nvFuser needs headers of a CUDA toolkit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, compute_dtype, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive

aten = torch.ops.aten


def _scan(name: str) -> Callable[..., Value]:
    def emit(e: Emitter, self: fx.Node, dim: int, **_: Any) -> Value:
        dtype = compute_dtype(e.out.dtype)
        value, rank = e.operand(self, dtype), meta(self).dim()
        if not rank:
            return e.result(e.ops.set(value), dtype)
        value = _unfolded(e, self, value, dtype)
        return e.result(e.apart(name, value, positive(dim, rank)), dtype)

    return emit


def _unfolded(e: Emitter, x: fx.Node, value: Value, dtype: torch.dtype) -> Value:
    """A value whose dimensions all have elements of their own: nvFuser scans none that is expanded."""
    if not _may_be_expanded(x):
        return value
    made: Value = e.ops.add(value, e.full(meta(x).shape, 0, dtype))
    return made


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


_EXPANDING = {aten.expand.default, aten.expand_copy.default, torch.ops.prims.broadcast_in_dim.default}


rule(aten.cumsum.default, kind="scan")(_scan("cumsum"))
rule(aten.cumprod.default, kind="scan")(_scan("cumprod"))


def _running_extreme(name: str) -> Callable[..., tuple[Value, Value]]:
    def emit(e: Emitter, self: fx.Node, dim: int) -> tuple[Value, Value]:
        value, dtype = e.tensor(self), meta(self).dtype
        if not meta(self).dim():
            return e.ops.set(value), e.full((), 0, torch.int64)
        sizes = meta(self).shape
        dim, wide = positive(dim, len(sizes)), compute_dtype(dtype)
        value = _unfolded(e, self, e.cast(value, dtype, wide), wide)
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
