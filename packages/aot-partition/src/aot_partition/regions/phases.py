"""When each node runs: phases that no path walks back through, so that regions made of them can't form a cycle.

Phases alternate. What is not claimed runs in even ones, what is claimed in odd ones; a value never flows from a
phase to an earlier one, and a node that is claimed reads those of its own phase only if they are on its device::

    phase   0        1         2       3
            mm ───> mul ─────> mm ──> add
              └───> gelu ──────┘       │
                    cos ───────────────┘

All claimed nodes of a phase and a device make one region. Two claimed nodes with an unclaimed one on a path between
them can't share a region, and a path of ``k`` such turns needs ``k`` regions: on one device, the number of odd phases
is the smallest number of regions that exists, and finding them takes two passes over the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["assign_phases"]

Device = torch.device


def assign_phases(
    graph: fx.Graph, device_of: Mapping[fx.Node, Device], before: Mapping[fx.Node, Sequence[fx.Node]]
) -> dict[fx.Node, int]:
    """Return the phase of every node but the output.

    A node first gets the earliest phase that its inputs allow. Then whatever takes more memory than it frees is put
    off until its first reader: casts of parameters, constants, expansions. Otherwise the casts of all layers of a
    model would run together at its beginning.

    Args:
        graph: The graph.
        device_of: The claimed nodes, and where each runs.
        before: Further nodes that must run before a node; see `order_constraints`.
    """
    phase: dict[fx.Node, int] = {}
    followers: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        phase[node] = _earliest(node, device_of, before.get(node, ()), phase)
        for earlier in before.get(node, ()):
            followers.setdefault(earlier, []).append(node)
    last = max(phase.values(), default=0)
    inputs_alone: set[fx.Node] = set()
    for node in graph.nodes:
        if node in device_of and not _kept(node, inputs_alone):
            inputs_alone.add(node)
    for node in reversed(graph.nodes):
        if node.op == "output" or _is_part(node):
            continue
        latest = _latest(node, device_of, followers, phase, last)
        if latest > phase[node] and (node not in device_of or _is_better_late(node, inputs_alone)):
            phase[node] = latest
            for part in node.users:
                if _is_part(part):
                    phase[part] = latest
    return phase


def _earliest(
    node: fx.Node,
    device_of: Mapping[fx.Node, Device],
    before: Sequence[fx.Node],
    phase: Mapping[fx.Node, int],
) -> int:
    claimed = node in device_of
    found = int(claimed)
    for earlier in (*node.all_input_nodes, *before):
        found = max(found, phase[earlier] + _step(earlier, node, device_of))
    return found


def _latest(
    node: fx.Node,
    device_of: Mapping[fx.Node, Device],
    followers: Mapping[fx.Node, Sequence[fx.Node]],
    phase: Mapping[fx.Node, int],
    last: int,
) -> int:
    found = last if last % 2 == (node in device_of) else last - 1
    pending = [(node, user) for user in (*node.users, *followers.get(node, ()))]
    for reader, user in pending:
        if _is_part(user):
            # A value of several runs with its parts.
            pending += [(user, further) for further in (*user.users, *followers.get(user, ()))]
        elif user.op == "output":
            # What the graph returns is there to stay: nothing is gained by waiting.
            found = min(found, phase[node])
        else:
            found = min(found, phase[user] - _step(reader, user, device_of))
    return found


def _step(earlier: fx.Node, later: fx.Node, device_of: Mapping[fx.Node, Device]) -> int:
    """Return how many phases at least lie between two nodes of which one must run before the other."""
    one, other = device_of.get(earlier), device_of.get(later)
    if one is None:
        return 0 if other is None else 1
    if other is None:
        return 1
    return 0 if one == other else 2


def _is_part(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _kept(node: fx.Node, inputs_alone: Collection[fx.Node]) -> list[fx.Node]:
    """Return what must be kept to compute a node later: not inputs of the graph, nor what follows from them alone.

    Such values are put off together with all that leads to them.
    """
    return [
        source
        for source in node.all_input_nodes
        if source.op not in ("placeholder", "get_attr") and source not in inputs_alone
    ]


def _is_better_late(node: fx.Node, inputs_alone: Collection[fx.Node]) -> bool:
    """Tell whether a value is at least as large as what must be kept to compute it later."""
    kept = _kept(node, inputs_alone)
    return not kept or _bytes([node]) >= _bytes(kept)


def _bytes(nodes: Collection[fx.Node]) -> int:
    tensors = (tensor for node in nodes for tensor in _compat.tensors_in(node.meta.get("val")))
    return sum(_compat.size_hint(tensor.numel()) * tensor.element_size() for tensor in tensors)
