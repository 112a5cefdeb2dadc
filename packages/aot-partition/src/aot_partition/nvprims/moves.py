"""Entries that give elements another place: views, which cost ATen nothing, and copies with another shape."""

from __future__ import annotations

from torch import fx

from aot_partition.nvprims.common_rules import tensors_of_value
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads, value_of

__all__ = ["ENTRIES"]


def _unit_step(node: fx.Node) -> str | None:
    """nvFuser slices with stride 1 alone."""
    step = call_arguments(node)["step"]
    return None if step == 1 else f"step {step}"


def _same_dtype(node: fx.Node) -> str | None:
    made = node.meta["val"]
    parts = [value for part in call_arguments(node)["tensors"] for value in tensors_of_value(value_of(part))]
    if any(part.dtype is not made.dtype for part in parts):
        return "parts of several dtypes"
    if any(part.dim() != made.dim() for part in parts):
        return "parts of several ranks"
    return None


def _adds_elements(node: fx.Node) -> str | None:
    widths = call_arguments(node)["pad"]
    if any(not isinstance(width, int) for width in widths):
        return "a symbolic width"
    return None


def _view(name: str, *suffixes: str, rule: object = None) -> Nvprim:
    return Nvprim(name, overloads(name, *suffixes), Kind.MOVE, rule=rule)  # type: ignore[arg-type]


ENTRIES = (
    _view("alias"),
    _view("detach"),
    _view("expand"),
    _view("permute"),
    _view("select", "int"),
    _view("slice", "Tensor", rule=_unit_step),
    _view("split", "Tensor"),
    _view("split_with_sizes"),
    _view("squeeze", "default", "dim", "dims"),
    _view("t"),
    _view("transpose", "int"),
    _view("unbind", "int"),
    _view("unsqueeze"),
    _view("view"),
    _view("_unsafe_view"),
    _view("reshape"),
    # These copy.
    Nvprim("cat", overloads("cat"), Kind.POINTWISE, rule=_same_dtype),
    Nvprim("pad", overloads("constant_pad_nd"), Kind.POINTWISE, rule=_adds_elements),
)
"""Views, concatenation and padding."""
