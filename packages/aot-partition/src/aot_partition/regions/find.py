"""Which claimed nodes are run together, and which are left to ATen because fusing them would not pay."""

from __future__ import annotations

import collections
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

import aot_core
from aot_core.protocol import Decision
from aot_partition import _compat
from aot_partition.nvprims.entry import Kind
from aot_partition.nvprims.table import nvprim_of
from aot_partition.regions.order import order_constraints
from aot_partition.regions.phases import assign_phases
from aot_partition.regions.region import Region, make_region

__all__ = ["find_regions"]


def find_regions(
    graph_module: fx.GraphModule,
    claimed: Collection[fx.Node],
    *,
    horizontal: bool = True,
    keep_all: bool = False,
    decisions: list[Decision] | None = None,
) -> list[Region]:
    """Group claimed nodes into regions, each of which can be run at once.

    Time is linear in the number of nodes and edges. Regions can't form a cycle, whatever is claimed; see
    `aot_partition.regions.phases`. A region has one device.

    Args:
        graph_module: A graph of ATen operators with ``meta["val"]``. Not changed.
        claimed: Which of its nodes may be fused: `aot_partition.nvprims.Claims`, or any collection of nodes. The parts
            of a value of several (``getitem``) go with it.
        horizontal: Put nodes that have nothing to do with each other into one region where they may run at the same
            time: as few regions as possible. Otherwise the nodes of a region read each other's values, or the
            same inputs.
        keep_all: Keep regions that don't pay: those that only move elements or compute a single operator.
        decisions: Gets what was left out and why.

    Returns:
        The regions, in an order in which they can be run.
    """
    device_of = _devices(graph_module.graph, claimed)
    before = order_constraints(graph_module.graph)
    phase = assign_phases(graph_module.graph, device_of, before)
    groups: dict[tuple[int, str], list[fx.Node]] = collections.defaultdict(list)
    for node in graph_module.graph.nodes:
        if node in device_of:
            groups[phase[node], str(device_of[node])].append(node)
    regions: list[Region] = []
    for _, nodes in sorted(groups.items()):
        parts = [nodes] if keep_all and horizontal else _connected(nodes, before)
        if not keep_all:
            parts = [part for part in (_worthwhile(part, before, decisions) for part in parts) if part]
            if horizontal and parts:
                together = {node for part in parts for node in part}
                parts = [[node for node in nodes if node in together]]
        regions += [
            make_region(f"region_{len(regions) + i}", part, device_of[part[0]])
            for i, part in enumerate(parts)
        ]
    return regions


def _devices(graph: fx.Graph, claimed: Collection[fx.Node]) -> dict[fx.Node, torch.device]:
    """Return the claimed nodes, and where the results of each are; a write has that of what it writes.

    The parts of a value of several are claimed with it, whatever was said of them.
    """
    wanted = set(claimed)
    found: dict[fx.Node, torch.device] = {}
    for node in graph.nodes:
        if node.target is operator.getitem:
            if node.args[0] in found:
                found[node] = found[node.args[0]]
        elif node in wanted:
            tensors = _compat.tensors_in(node.meta.get("val"))
            if tensors:
                found[node] = tensors[0].device
    return found


# --- what belongs together -----------------------------------------------------------------------------------


def _connected(nodes: Sequence[fx.Node], before: Mapping[fx.Node, Sequence[fx.Node]]) -> list[list[fx.Node]]:
    """Split nodes into groups that share no value: neither made in one and read in another, nor read in both.

    Nor must one of a group run before one of another: the groups may be run in any order.
    """
    leader: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        leader[node] = node
    first_reader: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        for source in node.all_input_nodes:
            if not _compat.tensors_in(source.meta.get("val")):
                continue
            other = source if source in leader else first_reader.setdefault(source, node)
            leader[find(node)] = find(other)
        for earlier in before.get(node, ()):
            if earlier in leader:
                leader[find(node)] = find(earlier)
    groups: dict[fx.Node, list[fx.Node]] = collections.defaultdict(list)
    for node in nodes:
        groups[find(node)].append(node)
    return list(groups.values())


# --- what pays ------------------------------------------------------------------------------------------------


def _worthwhile(
    nodes: Sequence[fx.Node], before: Mapping[fx.Node, Sequence[fx.Node]], decisions: list[Decision] | None
) -> list[fx.Node]:
    """Return those of connected nodes that are worth a region, perhaps none.

    Left out is what can be taken away without a path from the rest through it and back: all, or what comes last.
    """
    trailing = _trailing_views(nodes, before)
    kept = [node for node in nodes if node not in trailing]
    computing = [node for node in kept if _computes(node)]
    if not computing:
        _decide(decisions, nodes, "move-only", "it only moves or reshapes: views cost ATen nothing")
        return []
    if len(computing) == 1 and not _pays_alone(computing[0]):
        _decide(
            decisions, nodes, "one-operator", "one kernel either way: fusing a single operator saves nothing"
        )
        return []
    if trailing:
        _decide(
            decisions,
            [node for node in nodes if node in trailing],
            "trailing-view",
            "a view of a result is made outside, where it costs nothing",
        )
    return kept


def _trailing_views(nodes: Sequence[fx.Node], before: Mapping[fx.Node, Sequence[fx.Node]]) -> set[fx.Node]:
    """Return the views that no other node of the group reads, but through such views.

    A view of what the group overwrites is none of them: it must be made before.
    """
    inside = set(nodes)
    followed = {earlier for node in nodes for earlier in before.get(node, ())} if before else set()
    trailing: set[fx.Node] = set()

    def is_last(node: fx.Node) -> bool:
        return all(user not in inside or user in trailing for user in node.users)

    for node in reversed(nodes):
        if _kind(node) is not Kind.MOVE or node.target is operator.getitem or node in followed:
            continue
        parts = [user for user in node.users if user.target is operator.getitem]
        if all(map(is_last, parts)) and all(
            user in parts or user not in inside or user in trailing for user in node.users
        ):
            trailing.update((node, *parts))
    return trailing


def _kind(node: fx.Node) -> Kind:
    source: Any = node.args[0] if node.target is operator.getitem else node
    entry = nvprim_of(source.target)
    return Kind.POINTWISE if entry is None else entry.kind


def _computes(node: fx.Node) -> bool:
    return node.target is not operator.getitem and _kind(node) is not Kind.MOVE


def _pays_alone(node: fx.Node) -> bool:
    entry = nvprim_of(node.target)
    return entry is not None and entry.pays_alone


def _decide(decisions: list[Decision] | None, nodes: Sequence[fx.Node], code: str, detail: str) -> None:
    if decisions is not None:
        names = ", ".join(node.name for node in nodes[:4]) + (", …" if len(nodes) > 4 else "")
        decisions.append(
            Decision("partition", names, "leave to ATen", code, detail, aot_core.source_line(nodes[0]))
        )
