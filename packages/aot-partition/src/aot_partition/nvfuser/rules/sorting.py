"""Elements in order: nvFuser gives the places, and the values are gathered from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive

aten = torch.ops.aten


def _has_dims(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    return None if meta(self).dim() else "of a tensor without dimensions"


@rule(aten.sort.default, aten.sort.stable, kind="index", claim=_has_dims)
def sort(
    e: Emitter, self: fx.Node, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    """Elements in order, equal ones as they were; and where they were."""
    at = positive(dim, meta(self).dim())
    places = e.ops.argsort(e.tensor(self), at, descending, True)
    return e.ops.take_along_axis(e.tensor(self), places, at), places


@rule(aten.argsort.default, aten.argsort.stable, kind="index", claim=_has_dims)
def argsort(
    e: Emitter, self: fx.Node, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> Value:
    """Where elements come from, in order; equal ones as they were."""
    made: Value = e.ops.argsort(e.tensor(self), positive(dim, meta(self).dim()), descending, True)
    return made


@rule(aten.topk.default, kind="index", claim=_has_dims)
def topk(
    e: Emitter,
    self: fx.Node,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Value, Value]:
    """The largest or smallest elements, in order; and where they were."""
    at = positive(dim, meta(self).dim())
    values, places = e.ops.topk(e.tensor(self), e.size_value(k), at, largest, True)
    return values, places
