"""Products of matrices: taken only where an option asks for them, since libraries are seldom beaten."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter, meta
from aot_partition.nvfuser.rules import rule

aten = torch.ops.aten


def _floats(node: fx.Node, *_: Any, **__: Any) -> str | None:
    dtype = node.meta["val"].dtype
    return None if dtype in (torch.float16, torch.bfloat16) else f"of {dtype}: only 16-bit floats are taken"


@rule(aten.mm.default, aten.bmm.default, kind="matrix", claim=_floats)
def matmul(e: Emitter, self: fx.Node, mat2: fx.Node) -> Value:
    """The product of two matrices, or of two stacks of them."""
    made: Value = e.ops.matmul(e.tensor(self), e.tensor(mat2))
    return made


def _turned_weight(node: fx.Node, bias: fx.Node, mat1: fx.Node, mat2: fx.Node, **scales: Any) -> str | None:
    if any(each != 1 for each in scales.values()):
        return "with a factor"
    if meta(bias).dim() != 1:
        return "with a bias that is a matrix"
    return _floats(node)


@rule(aten.addmm.default, kind="matrix", claim=_turned_weight)
def addmm(e: Emitter, self: fx.Node, mat1: fx.Node, mat2: fx.Node, **_: Any) -> Value:
    """A layer: a product of two matrices, and a bias."""
    made: Value = e.ops.linear(e.tensor(mat1), e.ops.permute(e.tensor(mat2), (1, 0)), e.tensor(self))
    return made
