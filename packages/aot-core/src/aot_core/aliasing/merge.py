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

from aot_core.aliasing.effects import Effects
from aot_core.aliasing.memory import Geometry, alias_root, is_contiguous
from aot_core.aliasing.signature import AliasGroup, AliasSignature, Member
from aot_core.aliasing.view_chain import insert_view
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
        views: Position of an output → position of the caller's input that it is a view of, and the view's size, strides
            and offset. Of inputs that get a history outside: a view of the base would not have it.
        histories: For each output behind the original's: positions of the caller's inputs that are views of one
            tensor, which autograd shall see overwritten with it. It holds what lies there already.
    """

    gm: fx.GraphModule
    gathers: tuple[Gather, ...]
    returned: dict[int, int]
    geometries: dict[int, Geometry]
    views: dict[int, tuple[int, Geometry]]
    histories: tuple[tuple[int, ...], ...]

    def inputs(self, given: Sequence[Any]) -> list[Any]:
        """Return the inputs of the merged graph for a call."""
        return [gather(given) for gather in self.gathers]

    def restore(self, given: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Do to the caller's own tensors what the merged graph did to its views, and return the outputs."""
        count = len(outputs) - len(self.histories)
        for positions, value in zip(self.histories, outputs[count:], strict=True):
            alias_root(given[positions[0]]).copy_(value)
            for position in positions:
                # A view gets its history when that is read, which in-place operations don't.
                _ = given[position].grad_fn
        for position, (size, stride, offset) in self.geometries.items():
            given[position].as_strided_(size, stride, offset)
        restored = list(outputs[:count])
        for i, position in self.returned.items():
            restored[i] = given[position]
        for i, (position, geometry) in self.views.items():
            restored[i] = given[position].as_strided(*geometry)
        return tuple(restored)


def merge_aliases(
    gm: fx.GraphModule,
    signature: AliasSignature,
    effects: Effects,
    *,
    subject: str,
    without_gradients: bool = False,
) -> MergedGraph:
    """Give a graph one input for each group of aliases.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        signature: What shares memory in the calls that the result is for.
        effects: What the graph does to its inputs.
        subject: What to call the graph in a message.
        without_gradients: Nothing that it computes has a gradient. The bases that it is given require none then, which
            some operators refuse to write to even where gradients are off.

    Raises:
        UnsupportedAliasingError: a group that can't be merged; names its inputs and why.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    group_of = {position: group for group in signature for position in group.positions}
    names = [node.name for node in placeholders]
    for group in signature:
        _check(group, effects, names, subject)

    gathers: list[Gather] = []
    roots: dict[tuple[int, ...], fx.Node] = {}

    def merged_inputs(graph: fx.Graph) -> dict[fx.Node, Any]:
        renamed: dict[fx.Node, Any] = {}
        bases: dict[AliasGroup, fx.Node] = {}
        for position, node in enumerate(placeholders):
            group = group_of.get(position)
            if group is None:
                gathers.append(_take(position))
                renamed[node] = graph.placeholder(node.name)
            elif group not in bases:
                gather = _base_of(group, effects)
                gathers.append(_detaching(gather) if without_gradients else gather)
                bases[group] = graph.placeholder(f"base_of_{node.name}")
        for group, base in bases.items():
            roots.update(_detached_roots(graph, group, base, effects))
            for member in group.members:
                node = placeholders[member.position]
                if member.same_as != member.position:
                    renamed[node] = renamed[placeholders[member.same_as]]
                else:
                    renamed[node] = _regenerate(graph, group, base, member, effects, roots)
        return renamed

    def merged_outputs(values: Any) -> Any:
        kept = (None if i in returned or i in views else value for i, value in enumerate(values))
        return (*kept, *(root.graph.call_method("clone", (root,)) for root in roots.values()))

    # A member that is the base itself is an input of the merged graph too, and AOTAutograd returns it.
    viewed = {m.position for group in signature for m in group.members if not _is_base(group, m, effects)}
    returned = {out: i for out, i in effects.returned.items() if i in viewed}
    geometries = {i: g for i in viewed if (g := effects.inputs[i].geometry) is not None}
    gained = {
        i for group in signature for root in _gained_roots(group, effects) for i in group.positions_of(root)
    }
    views = {i: (owner, geometry) for i, (owner, geometry) in effects.views.items() if owner in gained}
    copied = copy_graph(gm, inputs=merged_inputs, outputs=merged_outputs)
    return MergedGraph(copied, tuple(gathers), returned, geometries, views, tuple(roots))


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
    if all(_is_base(group, member, effects) for member in group.members):
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
    if any(e.gains_grad and m.dtype != group.base_dtype for m, e in touched):
        raise refuse("one of another dtype than the others comes to require a gradient by a write")


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


def _base_of(group: AliasGroup, effects: Effects) -> Gather:
    first = group.members[0].position
    if group.one_tensor and _is_base(group, group.members[0], effects):
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


def _detaching(gather: Gather) -> Gather:
    return lambda given: gather(given).detach()


def _is_base(group: AliasGroup, member: Member, effects: Effects) -> bool:
    """Tell whether a member is what stands for its group, and not a view of it.

    One that comes to have another geometry never is: AOTAutograd would lose what is then written through older
    views of it, and what is a view can take any geometry. Nor is one that a `reshape` depends on, if it can be
    helped: what is written to it has other strides as long as AOTAutograd traces.
    """
    same = [effects.inputs[m.position] for m in group.members if m.same_as == member.same_as]
    if any(effect.geometry is not None or (effect.strides_matter and effect.written) for effect in same):
        return False
    return group.one_tensor or group.is_carrier(member)


def _gained_roots(group: AliasGroup, effects: Effects) -> list[int]:
    """Return the detached roots that come to require a gradient by a write to a member."""
    return sorted(
        {m.root for m in group.members if group.is_detached(m) and effects.inputs[m.position].gains_grad}
    )


def _detached_roots(
    graph: fx.Graph, group: AliasGroup, base: fx.Node, effects: Effects
) -> dict[tuple[int, ...], fx.Node]:
    """Make a detached alias of the base for each root that comes to require a gradient by a write to a member.

    All members of that root are views of it, so that its history is that of all writes to them.

    Returns:
        Positions of all members of such a root → the alias.
    """
    made: dict[tuple[int, ...], fx.Node] = {}
    for root in _gained_roots(group, effects):
        alias = graph.call_method("detach", (base,))
        view = insert_view(graph, alias, group.base_geometry, group.root_geometries[root])
        made[group.positions_of(root)] = view
    return made


def _regenerate(
    graph: fx.Graph,
    group: AliasGroup,
    base: fx.Node,
    member: Member,
    effects: Effects,
    roots: dict[tuple[int, ...], fx.Node],
) -> fx.Node:
    """Return what stands for a member: the base, or a view of it."""
    if _is_base(group, member, effects):
        return base
    root = roots.get(group.positions_of(member.root))
    if root is not None:
        return insert_view(graph, root, group.root_geometries[member.root], member.geometry)
    value, geometry = base, group.base_geometry
    if group.is_detached(member):
        value = graph.call_method("detach", (value,))
    if member.dtype != group.base_dtype:
        flat = graph.call_method("view", (value, -1))
        value = graph.call_method("view", (flat, member.dtype))
        geometry = ((_elements_as(group, member.dtype),), (1,), 0)
    return insert_view(graph, value, geometry, member.geometry)
