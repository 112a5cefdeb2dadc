"""Copies, and other dtypes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, meta
from aot_partition.nvfuser.rules import rule

aten, prims = torch.ops.aten, torch.ops.prims


def _same_device(node: fx.Node, self: fx.Node, *_: Any, **__: Any) -> str | None:
    source, target = meta(self).device, node.meta["val"].device
    return None if source == target else f"a copy from {source} to {target}"


@rule(aten._to_copy.default, prims.convert_element_type.default, claim=_same_device)
def convert(e: Emitter, self: fx.Node, *_: Any, **__: Any) -> Value:
    """The same values in another dtype."""
    source, target = meta(self).dtype, e.out.dtype
    if source is target:
        made: Value = e.ops.set(e.tensor(self))
        return made
    return e.cast(e.tensor(self), source, target)


@rule(
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.contiguous.default,
    kind="shape",
)
def copy(e: Emitter, self: fx.Node, *_: Any, **__: Any) -> Value:
    """The same values. Where they lie in memory is said of outputs only."""
    made: Value = e.ops.set(e.tensor(self))
    return made


@rule(operator.getitem, kind="tuple")
def one_of(e: Emitter, made: fx.Node, index: int) -> Value:
    """One result of an operator that has several."""
    chosen: Value = e.tensor(made)[index]
    return chosen


def _onto_its_like(node: fx.Node, self: fx.Node, src: fx.Node, non_blocking: bool = False) -> str | None:
    if meta(self).device != meta(src).device:
        return f"a copy from {meta(src).device} to {meta(self).device}"
    return None


@rule(aten.copy.default, aten.copy_.default, claim=_onto_its_like)
def overwritten(e: Emitter, self: fx.Node, src: fx.Node, non_blocking: bool = False) -> Value:
    """What a tensor holds after another was copied onto it: the other, in its dtype and shape.

    The translation lays the result of ``copy_`` over its input.
    """
    value = e.operand(src, e.out.dtype)
    made = e.expanded(value, meta(src).shape, e.out.shape)
    return made
