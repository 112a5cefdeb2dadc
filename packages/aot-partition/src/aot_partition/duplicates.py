"""Common subexpressions: which nodes of a graph compute what an earlier node has computed.

The rules are those of torch's own pass, so that the same nodes are left, under the same names. Unlike there,
no node that draws random numbers is ever merged, whether or not it is on a list; 0.0 and -0.0 are two numbers;
and no graph is copied.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["find_duplicates"]


def find_duplicates(
    nodes: Sequence[fx.Node], read_by: Sequence[Sequence[fx.Node]], output: fx.Node
) -> dict[fx.Node, fx.Node]:
    """Return the nodes that repeat an earlier one, each with that earlier one.

    ::

        a = sin(x)                  a = sin(x)
        b = sin(x)         →
        c = a + b                   c = a + a
        d = a + a                                   {b: a, d: c}

    Outputs that are separate tensors stay separate, so what shares a storage with an output is not merged;
    nor are two nodes between which something is written.

    Args:
        nodes: A graph's nodes in order, without dead ones.
        read_by: The distinct nodes that each of them reads.
        output: Its output node.
    """
    returned = {key for node in output.all_input_nodes if (key := _storage(node)) is not None}
    kept: dict[fx.Node, fx.Node] = {}
    merged = kept.keys()
    # First by what is cheap to look at; the arguments are compared only where that is not enough.
    seen: dict[tuple[Any, ...], fx.Node | dict[Any, fx.Node]] = {}
    # By address: operators of torch hash in Python, which would be half of the time here.
    known: dict[int, tuple[bool, bool]] = {}
    region = 0
    for node, arguments in zip(nodes, read_by, strict=True):
        if node.op != "call_function":
            continue
        target = node.target
        facts = known.get(id(target))
        if facts is None:
            facts = (_compat.is_mutation(node), not _never_merged(target))
            if _compat.is_overload(target) or target is operator.getitem:
                known[id(target)] = facts
        mutates, mergeable = facts
        region += mutates
        if not mergeable or "unbacked_bindings" in node.meta:
            continue
        if not merged.isdisjoint(arguments):
            arguments = [kept.get(argument, argument) for argument in arguments]
        shallow = (id(target), region, *arguments)
        earlier = seen.setdefault(shallow, node)
        if earlier is node or _storage(node) in returned:
            continue
        if isinstance(earlier, fx.Node):
            if _storage(earlier) in returned:
                seen[shallow] = node
                continue
            earlier = seen[shallow] = {_key(earlier, kept): earlier}
        first = earlier.setdefault(_key(node, kept), node)
        if first is not node:
            kept[node] = first
    return kept


def _never_merged(target: Any) -> bool:
    packet = getattr(target, "overloadpacket", target)
    return (
        packet is torch.ops.aten.empty
        or packet in _compat.random_packets()
        or torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    )


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    storage = _compat.storage_of(value)
    return None if storage is None else storage[0]


_PLAIN = frozenset({fx.Node, int, bool, str, type(None)})
"""Types of arguments that are compared as they are, beside their types: 1 and True are equal."""


def _key(node: fx.Node, kept: dict[fx.Node, fx.Node]) -> tuple[Any, ...]:
    arguments: Any = node.args
    types = tuple(map(type, arguments))
    if node.kwargs or not _PLAIN.issuperset(types):
        return _frozen(arguments, kept), _frozen(node.kwargs, kept)
    return types, *[kept.get(argument, argument) for argument in arguments]


def _frozen(argument: Any, kept: dict[fx.Node, fx.Node]) -> Any:
    """Return a hashable that is equal for equal arguments: 1 and 1.0 are not, nor 0.0 and -0.0."""
    if isinstance(argument, fx.Node):
        return kept.get(argument, argument)
    if isinstance(argument, (list, tuple)):
        return (type(argument), *[_frozen(part, kept) for part in argument])
    if isinstance(argument, dict):
        return (dict, *[(name, _frozen(part, kept)) for name, part in argument.items()])
    if isinstance(argument, slice):
        parts = (argument.start, argument.stop, argument.step)
        return (slice, *[_frozen(part, kept) for part in parts])
    if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _compat.expression(argument)
    if isinstance(argument, (float, complex)):
        return type(argument), argument, math.copysign(1, argument.real), math.copysign(1, argument.imag)
    return type(argument), argument
