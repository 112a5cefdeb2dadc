"""What is taken: whether a call of an operator can be said to nvFuser, and if not, why not."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.nvfuser.definition import DATA_TYPES
from aot_partition.nvfuser.emitter import meta
from aot_partition.nvfuser.rules import rules
from aot_partition.nvfuser.sizes import unsupported_size
from aot_partition.nvprims.entry import read_results

__all__ = ["MAX_RANK", "ClaimRules", "refusal"]

MAX_RANK = 8
"""How many dimensions a tensor of a kernel of nvFuser may have."""


@dataclasses.dataclass(frozen=True)
class ClaimRules:
    """Where nvFuser may be used.

    Args:
        devices: Types of the devices whose tensors are taken. A CPU tensor without dimensions is always.
        toolkit: Whether there are headers of a CUDA toolkit that nvFuser's kernels for sorting and scanning can
            include.
        bfloat16: Whether the device computes with it: before compute capability 8.0, kernels end in illegal code.
    """

    devices: tuple[str, ...] = ("cuda",)
    toolkit: bool = False
    bfloat16: bool = True


def refusal(node: fx.Node, claims: ClaimRules | None = None) -> str | None:
    """Return why a node is left to ATen, or None if nvFuser takes it.

    Args:
        node: A node whose ``meta["val"]`` and those of its arguments are fake tensors or symbolic numbers.
        claims: What is allowed; by default CUDA.
    """
    claims = claims or ClaimRules()
    if node.op != "call_function":
        return f"is a {node.op}"
    known = rules().get(node.target)
    if known is None:
        return "has no rule"
    if node.target is operator.getitem:
        made = node.args[0]
        return refusal(made, claims) if isinstance(made, fx.Node) else "takes one of no results"
    if known.kind == "scan" and not claims.toolkit:
        return "needs headers of a CUDA toolkit as old as nvFuser, which are not there"
    for tensor in (values := list(_tensors(node))):
        if reason := _refused_tensor(tensor, claims):
            return reason
    if len({tensor.device for tensor in values if tensor.device.type != "cpu" or tensor.dim()}) > 1:
        return "has tensors on several devices"
    for number in _numbers(node):
        if (
            reason := unsupported_size(number)
            if isinstance(number, torch.SymInt)
            else _refused_number(number)
        ):
            return reason
    return None if known.claim is None else known.claim(node, *node.args, **node.kwargs)


def _refused_tensor(tensor: torch.Tensor, claims: ClaimRules) -> str | None:
    if tensor.layout is not torch.strided:
        return f"has a tensor with layout {tensor.layout}"
    if tensor.dtype not in DATA_TYPES:
        return f"has a tensor of {tensor.dtype}"
    if tensor.dim() > MAX_RANK:
        return f"has a tensor of {tensor.dim()} dimensions, more than {MAX_RANK}"
    if tensor.dtype is torch.bfloat16 and not claims.bfloat16:
        return "has a tensor of torch.bfloat16, which this device does not compute with"
    if tensor.device.type not in claims.devices and (tensor.device.type != "cpu" or tensor.dim()):
        return f"has a tensor on {tensor.device.type}"
    if _compat.is_lazily_negated(tensor):
        return "has a tensor that is negated lazily"
    for size in tensor.shape:
        if type(size) is int and size == 0:
            return "has a tensor without elements"
        if reason := unsupported_size(size):
            return reason
    return None


def _refused_number(number: Any) -> str | None:
    if isinstance(number, complex):
        return "has a complex number"
    return f"has a {type(number).__name__}" if isinstance(number, (torch.SymFloat, torch.SymBool)) else None


def _tensors(node: fx.Node) -> Iterator[torch.Tensor]:
    for value in _compat.pytree.tree_leaves([read_results(node), *map(meta, node.all_input_nodes)]):
        if isinstance(value, torch.Tensor):
            yield value


def _numbers(node: fx.Node) -> Iterator[Any]:
    for leaf in _compat.pytree.tree_leaves((node.args, node.kwargs)):
        value = meta(leaf)
        if isinstance(value, (complex, torch.SymInt, torch.SymFloat, torch.SymBool)):
            yield value
