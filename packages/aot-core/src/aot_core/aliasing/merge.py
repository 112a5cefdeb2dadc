"""A graph over aliased inputs, as a graph over one base for each group.

Before, called with ``x`` and ``y`` that overlap::

    def graph(x, y):
        x.add_(1)
        return y * 2, x

After, called with the tensor that both are views of::

    def graph(base):
        x = base[0:4]
        y = base[2:6]
        x.add_(1)
        return y * 2, None           # that output is the caller's own x

AOTAutograd turns the writes to views of ``base`` into one functional update, which it knows how to do right.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core.aliasing.effects import Effects, Geometry
from aot_core.aliasing.signature import AliasGroup, AliasSignature, alias_root
from aot_core.aliasing.view_chain import insert_view, is_contiguous
from aot_core.errors import UnsupportedAliasingError
from aot_core.graph_copy import copy_graph

__all__ = ["MergedGraph", "merge_aliases"]

Gather = Callable[[Sequence[Any]], Any]
"""Takes the inputs of a call, and returns one input of the merged graph."""


@dataclasses.dataclass(frozen=True)
class MergedGraph:
    """A graph whose inputs share no memory.

    Args:
        gm: The graph.
        gathers: One for each of its inputs.
        returned: Position of an output → position of the caller's input that it is.
        geometries: Position of a caller's input → what its size, strides and offset become.
    """

    gm: fx.GraphModule
    gathers: tuple[Gather, ...]
    returned: dict[int, int]
    geometries: dict[int, Geometry]

    def inputs(self, given: Sequence[Any]) -> list[Any]:
        """Return the inputs of the merged graph for a call."""
        return [gather(given) for gather in self.gathers]

    def restore(self, given: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Do to the caller's own tensors what the merged graph did to its views, and return the outputs."""
        for position, (size, stride, offset) in self.geometries.items():
            given[position].as_strided_(size, stride, offset)
        return tuple(
            given[self.returned[i]] if i in self.returned else output for i, output in enumerate(outputs)
        )


def merge_aliases(
    gm: fx.GraphModule, signature: AliasSignature, effects: Effects, *, subject: str
) -> MergedGraph:
    """Give a graph one input for each group of aliases.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        signature: What shares memory in the calls that the result is for.
        effects: What the graph does to its inputs.
        subject: What to call the graph in a message.

    Raises:
        UnsupportedAliasingError: a group that can't be merged; names its inputs and why.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    group_of = {position: group for group in signature for position in group.positions}
    names = [node.name for node in placeholders]
    for group in signature:
        _check(group, effects, names, subject)

    gathers: list[Gather] = []

    def merged_inputs(graph: fx.Graph) -> dict[fx.Node, Any]:
        renamed: dict[fx.Node, Any] = {}
        bases: dict[AliasGroup, fx.Node] = {}
        for position, node in enumerate(placeholders):
            group = group_of.get(position)
            if group is None:
                gathers.append(_take(position))
                renamed[node] = graph.placeholder(node.name)
            elif group not in bases:
                gathers.append(_base_of(group))
                bases[group] = graph.placeholder(f"base_of_{node.name}")
        for group, base in bases.items():
            _regenerate(graph, group, base, [placeholders[i] for i in group.positions], renamed)
        return renamed

    merged = {i for group in signature if not group.one_tensor for i in group.positions}
    # A member that is the base itself is an input of the merged graph too, and AOTAutograd returns it.
    viewed = merged - {m.position for group in signature for m in group.members if group.is_carrier(m)}
    returned = {out: i for out, i in effects.returned.items() if i in viewed}
    geometries = {i: g for i in viewed if (g := effects.inputs[i].geometry) is not None}
    copied = copy_graph(gm, inputs=merged_inputs, outputs=lambda values: _without(values, returned))
    return MergedGraph(copied, tuple(gathers), returned, geometries)


def _check(group: AliasGroup, effects: Effects, names: list[str], subject: str) -> None:
    """Refuse a group for which one base can't stand."""
    listed = ", ".join(names[i] for i in group.positions)

    def refuse(why: str) -> UnsupportedAliasingError:
        return UnsupportedAliasingError(
            f"{subject} writes to its inputs {listed}, which share memory, and {why}. Pass tensors that don't "
            "share memory: clone all but one of them."
        )

    if effects.unknown is not None:
        raise refuse(f"what it does to them can't be told ({effects.unknown})")
    if group.one_tensor:
        return
    if not all(_has_view_as(group, member.dtype) for member in group.members):
        raise refuse("they have different dtypes, of which one does not fill the memory")
    if not all(member.is_plain_view for member in group.members):
        raise refuse("one of them is a conjugate or negative view")
    touched = [(member, effects.inputs[member.position]) for member in group.members]
    differentiable = any(group.roots_require_grad) or any(
        member.requires_grad or effect.gains_grad for member, effect in touched
    )
    if not differentiable or not torch.is_grad_enabled():
        return
    carrier = group.carrier
    if carrier is None:
        raise refuse("they require gradients and are views of different tensors")
    if any(m.requires_grad and m.is_leaf and not m.is_root for m in group.members):
        raise refuse("one of them is a leaf that requires a gradient and a view of another tensor")
    connected = [m for m in group.members if not group.is_detached(m)]
    if any(m.requires_grad != group.roots_require_grad[m.root] for m in connected):
        raise refuse("one of them is a view of a tensor that requires a gradient, and requires none itself")
    if any(e.gains_grad and group.is_detached(m) for m, e in touched):
        raise refuse("a detached one among them comes to require a gradient by a write")
    detached = [group.is_detached(m) for m, _ in touched]
    visible = any(e.visible_write and not d for (_, e), d in zip(touched, detached, strict=True))
    hidden = any(e.hidden_write or (e.written and d) for (_, e), d in zip(touched, detached, strict=True))
    if visible and hidden:
        raise refuse("some of the writes are recorded by autograd and others are hidden from it")


def _has_view_as(group: AliasGroup, dtype: torch.dtype) -> bool:
    """Tell whether what stands for the group can be viewed as another dtype as a whole."""
    if dtype == group.base_dtype:
        return True
    size, _, offset = group.base_geometry
    whole = math.prod(size) * group.base_dtype.itemsize
    return is_contiguous(group.base_geometry) and offset == 0 and whole % dtype.itemsize == 0


def _elements_as(group: AliasGroup, dtype: torch.dtype) -> int:
    return math.prod(group.base_geometry[0]) * group.base_dtype.itemsize // dtype.itemsize


def _take(position: int) -> Gather:
    return lambda given: given[position]


def _base_of(group: AliasGroup) -> Gather:
    first = group.members[0].position
    if group.one_tensor:
        return _take(first)
    carrier = group.carrier
    if carrier is not None:
        source = next(member.position for member in group.members if member.root == carrier)
        return lambda given: alias_root(given[source])

    def whole_storage(given: Sequence[Any]) -> torch.Tensor:
        tensor = given[first]
        with torch.no_grad():
            return tensor.detach().as_strided((group.elements,), (1,), 0)  # type: ignore[no-any-return]

    return whole_storage


def _regenerate(
    graph: fx.Graph, group: AliasGroup, base: fx.Node, nodes: list[fx.Node], renamed: dict[fx.Node, Any]
) -> None:
    """Map each member's placeholder to what stands for it: the base, or a view of it."""
    made: dict[int, fx.Node] = {}
    for member, node in zip(group.members, nodes, strict=True):
        if member.same_as not in made:
            value = base
            if not group.one_tensor and not group.is_carrier(member):
                if group.is_detached(member):
                    value = graph.call_method("detach", (value,))
                geometry = group.base_geometry
                if member.dtype != group.base_dtype:
                    flat = graph.call_method("view", (value, -1))
                    value = graph.call_method("view", (flat, member.dtype))
                    geometry = ((_elements_as(group, member.dtype),), (1,), 0)
                value = insert_view(graph, value, geometry, member.geometry)
            made[member.same_as] = value
        renamed[node] = made[member.same_as]


def _without(outputs: Any, returned: dict[int, int]) -> Any:
    return tuple(None if i in returned else output for i, output in enumerate(outputs))
