"""Tensors laid side by side, and room added around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, meta
from aot_partition.nvfuser.rules import rule
from aot_partition.nvfuser.rules.shape import positive, sliced

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
