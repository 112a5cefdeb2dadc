"""Claims written on the nodes of a graph, so that what a partitioner claimed is not claimed again by an executor.

A mark is plain data in ``node.meta``, so it comes along when nodes are copied into a forward and a backward graph. It
names the operator that was judged: a node that something else was made of since is judged anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import fx

from aot_partition.nvprims.claims import Claims
from aot_partition.nvprims.entry import Nvprim
from aot_partition.nvprims.table import NVPRIMS

__all__ = ["is_marked", "mark_", "marked_claims"]

KEY = "nvprims"


class Mark(NamedTuple):
    """What was said about a node.

    Args:
        by: Under which conditions: executor and options.
        target: The operator that it called.
        entry: Name of the entry by which it was claimed, or None.
        reason: Why it was refused, or empty.
    """

    by: str
    target: Any
    entry: str | None
    reason: str


def mark_(graph: fx.Graph, claims: Claims, *, by: str) -> None:
    """Write on the nodes of a graph what was claimed in the graph that they were copied from.

    Args:
        graph: A graph with nodes of the same names.
        claims: What was claimed.
        by: Under which conditions.
    """
    verdicts: dict[str, tuple[Any, Nvprim | str]] = {}
    for node, entry in claims.claimed.items():
        verdicts[node.name] = (node.target, entry)
    for node, reason in claims.refused.items():
        verdicts[node.name] = (node.target, reason)
    for node in graph.nodes:
        target, verdict = verdicts.get(node.name, (None, ""))
        if node.op.startswith("call_") and node.target == target:
            entry_name = verdict.name if isinstance(verdict, Nvprim) else None
            node.meta[KEY] = Mark(by, target, entry_name, "" if entry_name else str(verdict))


def is_marked(graph: fx.Graph, *, by: str) -> bool:
    """Tell whether nodes of a graph carry marks that were made under these conditions."""
    return any(_mark(node, by) is not None for node in graph.nodes)


def marked_claims(
    graph_module: fx.GraphModule, *, by: str, judge: Callable[[fx.GraphModule], Claims]
) -> Claims:
    """Return the claims that are written on a graph, or those that ``judge`` makes of one without marks.

    A few nodes without marks (a partitioner may have added some) are refused: ATen runs them.
    """
    if not is_marked(graph_module.graph, by=by):
        return judge(graph_module)
    claimed: dict[fx.Node, Nvprim] = {}
    refused: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        if node.op.startswith("call_"):
            mark = _mark(node, by)
            if mark is None:
                refused[node] = "added by the partitioner"
            elif mark.entry is not None:
                claimed[node] = NVPRIMS[mark.entry]
            else:
                refused[node] = mark.reason
    return Claims(claimed, refused)


def _mark(node: fx.Node, by: str) -> Mark | None:
    mark = node.meta.get(KEY)
    fits = isinstance(mark, Mark) and mark.by == by and mark.target == node.target
    return mark if fits else None
