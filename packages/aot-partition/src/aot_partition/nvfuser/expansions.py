"""Dimensions that are repeated, and what nvFuser makes of them in a reduction.

It keeps a repeated dimension at size 1 until an operator combines it with a tensor that has it::

    x.expand(4, 3) * full                   taken: ``full`` has four rows
    x.expand(4, 3).exp()                    taken: what is returned is repeated then
    x.expand(4, 3).exp().sum(1)             one row comes out, or an assertion fails inside (nvFuser 0.2.36)

Left to ATen, ``expand`` costs nothing, and as an input of a fusion a repeated tensor does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.emitter import meta

__all__ = ["reduced_while_repeated"]

EXPANDING = (torch.ops.aten.expand, torch.ops.aten.expand_copy, torch.ops.prims.broadcast_in_dim)


def reduced_while_repeated(node: fx.Node, *args: Any, **kwargs: Any) -> str | None:
    """Return a reason not to take an ``expand``: what it repeats reaches a reduction, and no tensor in full before."""
    from aot_partition.nvfuser.rules import kind_of  # a rule asks for this module

    if not _repeats(node):
        return None
    seen, todo = {node}, [node]
    while todo:
        value = todo.pop()
        for user in value.users:
            kind = kind_of(user)
            if kind == "reduction":
                return "repeats what is reduced"
            made = None if user.op == "output" else meta(user)
            if user in seen or not isinstance(made, torch.Tensor):
                continue
            # What is indexed or scattered is given its full size first.
            if kind == "shape" or (kind == "compute" and not _meets_a_full_tensor(user, made.shape, seen)):
                seen.add(user)
                todo.append(user)
    return None


def _meets_a_full_tensor(node: fx.Node, shape: Sequence[Any], repeated: set[fx.Node]) -> bool:
    return any(
        isinstance(meta(each), torch.Tensor)
        and tuple(meta(each).shape) == tuple(shape)
        and not _stays_repeated(each, repeated)
        for each in node.all_input_nodes
    )


def _stays_repeated(node: fx.Node, repeated: set[fx.Node]) -> bool:
    """Tell whether a node is repeated too, looking back along operators of one tensor."""
    while node not in repeated:
        if _repeats(node):
            return True
        tensors = [each for each in node.all_input_nodes if isinstance(meta(each), torch.Tensor)]
        if node.op != "call_function" or len(tensors) != 1:
            return False
        if not isinstance(meta(node), torch.Tensor) or meta(tensors[0]).shape != meta(node).shape:
            return False
        node = tensors[0]
    return True


def _repeats(node: fx.Node) -> bool:
    if getattr(node.target, "overloadpacket", None) not in EXPANDING:
        return False
    return len(_above_one(meta(node.args[0]).shape)) < len(_above_one(meta(node).shape))


def _above_one(sizes: Sequence[Any]) -> list[Any]:
    return [size for size in sizes if not (type(size) is int and size == 1)]
