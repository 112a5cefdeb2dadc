"""What must run before what although no value says so: writes, random numbers, effects.

A region runs all its nodes at once, at the place of one of them. Three things may not be moved past each other
without changing results: what reads memory and what overwrites it, two draws from a generator, and two effects.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import fx

from aot_partition import _compat

__all__ = ["order_constraints"]


def order_constraints(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return for each node the earlier nodes that must run before it, beside those whose values it reads.

    Args:
        graph: A graph of ATen operators with ``meta["val"]``.
    """
    before: dict[fx.Node, list[fx.Node]] = collections.defaultdict(list)
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    draws: list[fx.Node] = []
    effects: list[fx.Node] = []
    writers: dict[fx.Node, set[int]] = {}
    known: dict[Any, _Traits] = {}
    for node in calls:
        traits = known.get(node.target)
        if traits is None:
            traits = _traits(node)
            if _compat.is_overload(node.target):
                known[node.target] = traits
        if traits.random:
            draws.append(node)
        if traits.effect:
            effects.append(node)
        if traits.write:
            writers[node] = _written(node)
    for chain in (draws, effects):
        for earlier, later in itertools.pairwise(chain):
            before[later].append(earlier)
    if writers:
        _order_writes(calls, writers, before)
    return dict(before)


class _Traits(NamedTuple):
    random: bool
    effect: bool
    write: bool


def _traits(node: fx.Node) -> _Traits:
    # What an operator that calls graphs does inside is not looked at.
    calls_graphs = _compat.is_higher_order(node.target)
    return _Traits(
        random=_compat.draws_numbers(node.target) or calls_graphs,
        effect=bool(node.is_impure()) or calls_graphs,
        write=_compat.is_mutation(node),
    )


def _written(node: fx.Node) -> set[int]:
    """Return the storages that a node writes; of an operator without a schema, all that it reads."""
    if _compat.is_overload(node.target):
        return _storages(_compat.written_arguments(node))
    return _storages(node.all_input_nodes)


def _storages(nodes: Iterable[fx.Node]) -> set[int]:
    tensors = (tensor for node in nodes for tensor in _compat.tensors_in(node.meta.get("val")))
    return {storage[0] for tensor in tensors if (storage := _compat.storage_of(tensor))}


def _order_writes(
    calls: list[fx.Node], writers: dict[fx.Node, set[int]], before: dict[fx.Node, list[fx.Node]]
) -> None:
    watched = set().union(*writers.values())
    readers: dict[int, list[fx.Node]] = collections.defaultdict(list)
    writer: dict[int, fx.Node] = {}
    for node in calls:
        written = writers.get(node, set())
        # A node that makes a view touches the storage as well: what reads the view later reads through it.
        touched = (_storages([*node.all_input_nodes, node]) | written) & watched
        for storage in touched:
            if storage in writer:
                before[node].append(writer[storage])
        for storage in written:
            before[node].extend(readers.pop(storage, ()))
            writer[storage] = node
        for storage in touched:
            readers[storage].append(node)
    for node, earlier in before.items():
        before[node] = [other for other in dict.fromkeys(earlier) if other is not node]
