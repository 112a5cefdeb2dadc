"""Which results of a region a fusion returns, and which are made of those by ATen.

A view that a fusion returns would be a copy, or an alias of an input that nobody expects (NVIDIA/Fuser#3833). So the
fusion returns what the view is of, and ATen makes the view, as it would have::

    region:   y = exp(x);  z = y.t()   → [z]
    fusion:   y = exp(x)               → [y]
    then:     z = y.t()                → [z]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["OutputPlan", "plan_outputs"]


@dataclasses.dataclass(frozen=True)
class OutputPlan:
    """How the outputs of a region come to be.

    Attributes:
        computed: The nodes whose values the fusion returns, each once.
        needed: The nodes that the fusion has to compute, in order.
        views: The nodes that ATen makes afterwards, in order.
    """

    computed: tuple[fx.Node, ...]
    needed: tuple[fx.Node, ...]
    views: tuple[fx.Node, ...]


def plan_outputs(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> OutputPlan:
    """Divide the nodes of a region.

    Args:
        nodes: Its calls, in order.
        outputs: What it returns; inputs may be among them.
    """
    inside = set(nodes)
    views: set[fx.Node] = set()
    computed: dict[fx.Node, None] = {}
    for node in outputs:
        while node in inside and _is_view(node, inside):
            views.add(node)
            (node,) = (each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor))
        if node in inside:
            computed[node] = None
    needed = _needed(nodes, computed)
    return OutputPlan(tuple(computed), needed, tuple(node for node in nodes if node in views))


def _is_view(node: fx.Node, inside: set[fx.Node]) -> bool:
    made_of = [each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)]
    # A view by numbers that the region computes can't be made outside of it.
    numbers = [each for each in node.all_input_nodes if each not in made_of]
    return (
        _compat.is_view_operator(node.target) and len(made_of) == 1 and not any(n in inside for n in numbers)
    )


def _needed(nodes: Sequence[fx.Node], computed: Mapping[fx.Node, None]) -> tuple[fx.Node, ...]:
    wanted: set[fx.Node] = set(computed)
    kept: list[fx.Node] = []
    for node in reversed(nodes):
        if node in wanted or _compat.is_mutation(node):
            kept.append(node)
            wanted.update(node.all_input_nodes)
    return tuple(reversed(kept))


def run_views(views: Sequence[fx.Node], values: dict[fx.Node, Any]) -> None:
    """Make views with ATen, and add them to the values of nodes."""
    for node in views:
        arguments = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        positional, named = arguments
        target: Any = node.target
        values[node] = target(*positional, **named)
