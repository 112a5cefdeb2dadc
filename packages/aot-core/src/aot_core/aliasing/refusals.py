"""Writes that no traced graph can do as eager does them, whatever memory the inputs lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from aot_core import _compat
from aot_core.aliasing.effects import Effects
from aot_core.aliasing.memory import overlaps_itself
from aot_core.aliasing.signature import AliasSignature
from aot_core.errors import UnsupportedAliasingError

__all__ = ["refuse_opaque_views", "refuse_unsupported"]


def refuse_unsupported(gm: fx.GraphModule, inputs: Sequence[Any], effects: Effects, *, subject: str) -> None:
    """Raise for what can't be compiled right.

    Raises:
        UnsupportedAliasingError: the graph writes to an input whose elements overlap, such as an expanded
            one: written back, the last of several values for one place would win.
    """
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    for name, x, effect in zip(names, inputs, effects.inputs, strict=True):
        if effect.written and overlaps_itself(x):
            raise UnsupportedAliasingError(
                f"{subject} writes to its input {name}, whose elements overlap in memory (size "
                f"{tuple(x.size())}, strides {tuple(x.stride())}). Pass a contiguous copy: x.contiguous()."
            )


def refuse_opaque_views(
    gm: fx.GraphModule, inputs: Sequence[Any], signature: AliasSignature, *, subject: str
) -> None:
    """Raise where inputs share memory of a device that does not tell where in it they lie.

    One tensor passed several times needs no place, unless it is a view itself.

    Raises:
        UnsupportedAliasingError: names the inputs and their device.
    """
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    for group in signature:
        first = inputs[group.positions[0]]
        if _compat.is_opaque(first) and not (group.one_tensor and group.members[0].is_root):
            shared = ", ".join(names[i] for i in group.positions)
            raise UnsupportedAliasingError(
                f"{subject} changes memory that its inputs {shared} share or are views of, on device "
                f"{first.device}, which does not tell where in it a view lies. Pass copies: x.clone()."
            )
