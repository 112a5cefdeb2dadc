"""Writes that no traced graph can do as eager does them, whatever memory the inputs lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.effects import Effects, geometry_of, has_memory
from aot_core.aliasing.signature import AliasSignature
from aot_core.errors import UnsupportedAliasingError

__all__ = ["needs_a_look", "overlaps_itself", "refuse_opaque_views", "refuse_unsupported"]


def needs_a_look(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Tell whether a graph could hold something to refuse; most can't, and looking costs a fake run."""
    overlapping = any(isinstance(x, torch.Tensor) and overlaps_itself(x) for x in inputs)
    return overlapping or any(_compat.hides_from_autograd(node) for node in gm.graph.nodes)


def refuse_unsupported(gm: fx.GraphModule, inputs: Sequence[Any], effects: Effects, *, subject: str) -> None:
    """Raise for what can't be compiled right.

    Raises:
        UnsupportedAliasingError: the graph writes to an input whose elements overlap, such as an expanded
            one: written back, the last of several values for one place would win. Or it writes to an input
            that requires a gradient both in sight of autograd and hidden from it: written back as a whole, the
            hidden part would be seen. Or it returns a detached alias of an input that has come to require a
            gradient of its own.
    """
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    for name, x, effect in zip(names, inputs, effects.inputs, strict=True):
        if effect.written and overlaps_itself(x):
            raise UnsupportedAliasingError(
                f"{subject} writes to its input {name}, whose elements overlap in memory (size "
                f"{tuple(x.size())}, strides {tuple(x.stride())}). Pass a contiguous copy: x.contiguous()."
            )
        if effect.visible_write and effect.hidden_write and x.requires_grad and torch.is_grad_enabled():
            raise UnsupportedAliasingError(
                f"{subject} writes to its input {name}, which requires a gradient, both in sight of autograd and "
                "hidden from it (under no_grad, or through a detached alias). Keep to one of the two."
            )
    if effects.detached and torch.is_grad_enabled():
        raise UnsupportedAliasingError(
            f"{subject} returns, as output {effects.detached[0]}, a detached alias of an input to which it has "
            "written what requires a gradient. Write to the input itself, or return a copy."
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


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Tell whether two elements of a tensor may lie in the same place."""
    if not has_memory(tensor):
        return False
    size, stride, _ = geometry_of(tensor)
    reach = 0
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False
