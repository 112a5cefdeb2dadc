"""Rules that several operators share. Each looks at a call, and returns why it is refused, or None."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_partition.nvprims.entry import Rule, call_arguments, tensors_of, value_of

__all__ = [
    "DTYPES",
    "MAX_RANK",
    "all_of",
    "check_tensors",
    "dense_result",
    "floating",
    "no_integers",
    "on_one_device",
]

DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.bool,
    }
)
"""What nvFuser computes with. It also knows complex and 8-bit floating-point numbers, and few operators on them."""

MAX_RANK = 8
"""The most dimensions of a tensor that nvFuser takes."""


def check_tensors(node: fx.Node) -> str | None:
    """Check what holds for every operator: metadata, dtypes, layout, rank, and that there are elements."""
    if "val" not in node.meta:
        return "it has no meta['val']"
    found = False
    for tensor in tensors_of(node):
        found = True
        if type(tensor).__name__ not in ("FakeTensor", "Tensor", "Parameter", "FunctionalTensor"):
            return f"{type(tensor).__name__} is not a plain tensor"
        if tensor.layout is not torch.strided:
            return f"layout {tensor.layout}"
        if tensor.dtype not in DTYPES:
            return f"dtype {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.dim() > MAX_RANK:
            return f"more than {MAX_RANK} dimensions"
        if any(type(size) is int and size == 0 for size in tensor.shape):
            return "a tensor without elements"
    if not found:
        return "no tensor"
    if any(isinstance(argument, complex) for argument in node.args):
        return "a complex number"
    return on_one_device(node)


def on_one_device(node: fx.Node) -> str | None:
    """Refuse what has tensors of two devices. Numbers on the CPU, tensors of rank 0, may be read anywhere."""
    made = [tensor.device for tensor in tensors_of_result(node)]
    devices = set(made)
    for argument in node.all_input_nodes:
        for tensor in tensors_of_value(argument.meta.get("val")):
            if tensor.dim() or tensor.device.type != "cpu" or not made:
                devices.add(tensor.device)
    return "tensors of two devices" if len(devices) > 1 else None


def tensors_of_value(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a traced value."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [part for part in value if isinstance(part, torch.Tensor)]
    return []


def tensors_of_result(node: fx.Node) -> list[torch.Tensor]:
    """Return the traced tensors that a node makes."""
    return tensors_of_value(node.meta.get("val"))


def all_of(*rules: Rule) -> Rule:
    """Return a rule that refuses for the first reason that one of several finds."""

    def rule(node: fx.Node) -> str | None:
        return next((reason for check in rules if (reason := check(node))), None)

    return rule


def floating(node: fx.Node) -> str | None:
    """Refuse operands that aren't floating-point numbers."""
    for argument in node.all_input_nodes:
        value = value_of(argument)
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            return f"dtype {str(value.dtype).removeprefix('torch.')} where only floating point is exact"
    return None


def no_integers(node: fx.Node) -> str | None:
    """Refuse results that are integers."""
    for tensor in tensors_of_result(node):
        if not tensor.is_floating_point() and tensor.dtype is not torch.bool:
            return f"dtype {str(tensor.dtype).removeprefix('torch.')}"
    return None


def dense_result(node: fx.Node) -> str | None:
    """Refuse a conversion to another layout or to pinned memory."""
    arguments = call_arguments(node)
    if arguments.get("pin_memory"):
        return "pinned memory"
    if arguments.get("layout") not in (None, torch.strided):
        return f"layout {arguments['layout']}"
    return None
