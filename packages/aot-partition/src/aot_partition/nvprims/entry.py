"""What an nvprim is: operators of ATen that nvFuser computes, and the rule by which a call of one is claimed."""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["Kind", "Nvprim", "Rule", "call_arguments", "overloads", "read_results", "tensors_of", "value_of"]

Rule = Callable[[fx.Node], "str | None"]
"""Looks at a call, and returns why it is refused; None claims it."""


class Kind(enum.Enum):
    """What an operator does to memory. Regions are judged by it."""

    POINTWISE = "pointwise"
    """Computes each element from the elements at its place."""
    REDUCTION = "reduction"
    """Computes one element from many; scans and sorts too."""
    MOVE = "move"
    """Gives the same elements another shape, in the same memory when it is run by ATen."""
    CREATE = "create"
    """Computes a tensor from numbers alone."""
    INDEX = "index"
    """Reads or writes where another tensor says."""
    RANDOM = "random"
    """Draws numbers."""
    MATMUL = "matmul"
    """Multiplies matrices, or attends. Claimed on request only."""
    WRITE = "write"
    """Writes an input of the graph."""


@dataclasses.dataclass(frozen=True, eq=False)
class Nvprim:
    """One entry of the op set.

    Args:
        name: Its name in ``torch.ops.nvprims``.
        targets: The overloads of ATen (or of torch's prims) that it stands for.
        kind: What it does to memory.
        recomputable: Whether a partitioner may compute it again in place of saving its result.
        rule: Claims or refuses a call, beyond what holds for all: dtypes, rank, layout, device.
        pays_alone: Whether a region of this one operator is worth its launch.
        option: The option that must be given before it is claimed, if any.
    """

    name: str
    targets: tuple[Any, ...]
    kind: Kind
    recomputable: bool = True
    rule: Rule | None = None
    pays_alone: bool = False
    option: str | None = None

    def __repr__(self) -> str:
        return f"<nvprim {self.name}>"


def overloads(name: str, *suffixes: str) -> tuple[Any, ...]:
    """Return overloads of an operator of ATen, those that this torch has.

    Args:
        name: The operator: ``"add"``.
        suffixes: Its overloads: ``"Tensor"``, ``"Scalar"``; ``"default"`` if none is given.
    """
    packet = getattr(torch.ops.aten, name, None)
    found = (getattr(packet, suffix, None) for suffix in suffixes or ("default",))
    return tuple(overload for overload in found if overload is not None)


def value_of(argument: Any) -> Any:
    """Return the traced value of an argument: what a node stands for, or the constant itself."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def tensors_of(node: fx.Node) -> Iterator[torch.Tensor]:
    """Yield the traced tensors that a node reads and makes, its results last, those that something reads."""
    for argument in node.all_input_nodes:
        yield from _tensors(argument.meta.get("val"))
    yield from _tensors(read_results(node))


def read_results(node: fx.Node) -> Any:
    """Return the traced result of a node; of several those that something reads. A random state may be read by none."""
    value = node.meta.get("val")
    if not isinstance(value, (tuple, list)) or any(
        user.target is not operator.getitem for user in node.users
    ):
        return value
    read = {user.args[1] for user in node.users}
    return [part for i, part in enumerate(value) if i in read]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)


def call_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by the names of the operator's schema, defaults filled in."""
    return _compat.bound_arguments(node)
