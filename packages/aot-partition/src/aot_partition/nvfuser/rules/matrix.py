"""Products of matrices, and attention: taken only where an option asks for them, since libraries are seldom beaten."""

from __future__ import annotations

import operator
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


def _without_random_state(
    node: fx.Node,
    query: fx.Node,
    key: fx.Node,
    value: fx.Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> str | None:
    if dropout_p or return_debug_mask:
        return "with dropout"
    if any(user.target is not operator.getitem or user.args[1] not in (0, 1) for user in node.users):
        return "with a backward, which reads its random state"
    dtype = meta(query).dtype
    return None if dtype in (torch.float16, torch.bfloat16) else f"of {dtype}: only 16-bit floats are taken"


@rule(aten._scaled_dot_product_flash_attention.default, kind="matrix", claim=_without_random_state)
def attention(
    e: Emitter,
    query: fx.Node,
    key: fx.Node,
    value: fx.Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Value, Value]:
    """Flash attention: values weighed by how alike queries and keys are; and the logarithm of the weights' sum."""
    said = {
        "dropout_p": e.constant(0.0, torch.float64),
        "is_causal": e.constant(is_causal, torch.bool),
        "scale": e.constant(meta(query).shape[-1] ** -0.5 if scale is None else scale, torch.float64),
    }
    made: Any = e.ops.sdpfa_fwd(e.tensor(query), e.tensor(key), e.tensor(value), **said)
    return made[0], made[1]
