"""The values that pass from forward to backward, in the order that AOTAutograd's runtime expects."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import torch

from aot_partition import _compat
from aot_partition.joint_graph import JointGraph

__all__ = ["SavedValues"]


@dataclasses.dataclass(frozen=True)
class SavedValues:
    """Positions of saved values, by how autograd holds them; each group in graph order.

    Args:
        checked: Tensors that autograd guards against writes between forward and backward.
        unchecked: Tensors that eager PyTorch would not guard.
        objects: Values that are neither tensor nor number.
        numbers: Symbolic numbers: first those that are symbols, then derived ones.
    """

    checked: list[int]
    unchecked: list[int]
    objects: list[int]
    numbers: list[int]

    @classmethod
    def of(cls, joint: JointGraph, kept: Collection[int]) -> SavedValues:
        """Sort saved values, and add the symbols that occur in sizes of saved values and tangents.

        A backward compiler binds each symbol to an input, so they come along although no node reads them.
        """
        checked: list[int] = []
        unchecked: list[int] = []
        scripts: list[int] = []
        opaque: list[int] = []
        symbols: list[int] = []
        derived: list[int] = []
        bound: set[Any] = set()
        for i in sorted(kept):
            node = joint.nodes[i]
            if joint.is_symbolic[i]:
                symbol = _compat.bound_symbol(node)
                if symbol is None:
                    derived.append(i)
                else:
                    bound.add(symbol)
                    symbols.append(i)
            elif not isinstance(joint.value(i), torch.Tensor) and _compat.is_opaque(node):
                opaque.append(i)
            elif _compat.is_fake_script_object(joint.value(i)):
                scripts.append(i)
            elif node.meta.get("saved_tensor_with_no_vc_check", False):
                unchecked.append(i)
            else:
                checked.append(i)
        bindings = _bindings(joint)
        if bindings:
            for i in (*derived, *checked, *unchecked, *scripts, *joint.tangents):
                value = joint.value(i)
                if value is None:
                    continue
                for symbol in sorted(_compat.free_symbols(value) - bound, key=lambda s: str(s.name)):
                    bound.add(symbol)
                    # Graphs traced by hand may lack the input that a symbol came from.
                    if symbol in bindings and bindings[symbol] not in symbols:
                        symbols.append(bindings[symbol])
        return cls(checked, unchecked, scripts + opaque, symbols + derived)

    def after_states(self) -> list[int]:
        """Return what the forward returns after its RNG states."""
        return self.unchecked + self.objects + self.numbers

    def all(self) -> list[int]:
        """Return all positions, in the order in which the forward returns them."""
        return self.checked + self.after_states()


def _bindings(joint: JointGraph) -> dict[Any, int]:
    bindings: dict[Any, int] = {}
    for i, symbolic in enumerate(joint.is_symbolic):
        if symbolic:
            symbol = _compat.bound_symbol(joint.nodes[i])
            if symbol is not None:
                bindings.setdefault(symbol, i)
    return bindings
