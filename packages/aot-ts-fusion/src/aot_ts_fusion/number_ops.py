"""Python's own operations on symbolic numbers, and what TorchScript calls them.

A traced graph computes sizes with `operator.add`, `math.floor`, `torch.sym_max` and their like. At run time these are
plain numbers. TorchScript has the same operations with Python's meaning: floor division rounds down, a remainder has
the divisor's sign.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_ts_fusion.obstacle import Obstacle

__all__ = ["NUMBER_OPS", "TENSOR_NUMBERS", "number_operands"]

NUMBER_OPS: dict[Callable[..., Any], str] = {
    operator.add: "aten::add",
    operator.sub: "aten::sub",
    operator.mul: "aten::mul",
    operator.floordiv: "aten::floordiv",
    operator.mod: "aten::remainder",
    operator.truediv: "aten::div",
    operator.neg: "aten::neg",
    operator.abs: "prim::abs",
    operator.eq: "aten::eq",
    operator.ne: "aten::ne",
    operator.lt: "aten::lt",
    operator.le: "aten::le",
    operator.gt: "aten::gt",
    operator.ge: "aten::ge",
    operator.and_: "aten::__and__",
    operator.or_: "aten::__or__",
    operator.xor: "aten::__xor__",
    operator.lshift: "aten::__lshift__",
    operator.rshift: "aten::__rshift__",
    math.floor: "aten::floor",
    math.ceil: "aten::ceil",
    math.sqrt: "aten::sqrt",
    torch.sym_int: "aten::Int",
    torch.sym_float: "aten::Float",
    torch.sym_not: "aten::__not__",
    torch.sym_max: "prim::max",
    torch.sym_min: "prim::min",
    # Chains of the operator, see `number_operands`.
    operator.pow: "aten::mul",
    torch.sym_sum: "aten::add",
}
"""Function of numbers → TorchScript operator. The overload follows from the types of its arguments."""

TENSOR_NUMBERS: dict[Any, str] = {
    torch.ops.aten.sym_size.int: "aten::size",
    torch.ops.aten.sym_stride.int: "aten::stride",
    torch.ops.aten.sym_numel.default: "aten::numel",
    torch.ops.aten.sym_storage_offset.default: "aten::storage_offset",
}
"""ATen operator that asks a tensor for a symbolic number → the one that asks it for a number."""


_LONGEST_POWER = 8


def number_operands(node: fx.Node) -> list[Any]:
    """Return what a number's operator is applied to, from left to right: ``s**3`` is ``s * s * s``.

    Raises:
        Obstacle: a power that is no short product.
    """
    if node.target is torch.sym_sum:
        return list(node.args[0])  # type: ignore[arg-type]
    if node.target is not operator.pow:
        return list(node.args)
    base, exponent = node.args
    if type(exponent) is not int or not 1 <= exponent <= _LONGEST_POWER:
        raise Obstacle(
            "power", f"TorchScript's own power of integers is a float, and {exponent} no small number"
        )
    return [base] * exponent
