"""Sums and products of all elements up to each."""

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
        made = getattr(e.ops, name)(value, positive(dim, rank)) if rank else e.ops.set(value)
        return e.result(made, dtype)

    return emit


rule(aten.cumsum.default, kind="reduction")(_scan("cumsum"))
rule(aten.cumprod.default, kind="reduction")(_scan("cumprod"))
