"""Which nodes of a graph an executor of fused regions takes, and why it leaves the others to ATen.

Nodes are of ATen and stay so. A claim is a remark about a node, and ATen is what runs wherever no executor takes
a region: operators of one's own in the dispatcher cost some twenty times as much a call.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from torch import fx

import aot_core
from aot_core.protocol import Decision
from aot_partition import _compat
from aot_partition.errors import UnknownOperatorError
from aot_partition.nvprims.common_rules import check_tensors
from aot_partition.nvprims.entry import Kind, Nvprim
from aot_partition.nvprims.products import OPTIONS
from aot_partition.nvprims.table import nvprim_of

__all__ = ["Claims", "Refuse", "claim", "skipped_overloads"]

Refuse = Callable[[fx.Node], "str | None"]
"""Says why an executor leaves a node that the op set claims to ATen, or None."""


@dataclasses.dataclass(frozen=True)
class Claims:
    """What was claimed in one graph.

    Attributes:
        claimed: The nodes that are claimed, in graph order, each with its entry of the op set. The parts of a value
            of several (``getitem``) have the entry of the node that they are parts of.
        refused: The other nodes that call something, each with the reason in a few words.
    """

    claimed: dict[fx.Node, Nvprim]
    refused: dict[fx.Node, str]

    def __contains__(self, node: object) -> bool:
        return node in self.claimed

    def __iter__(self) -> Iterator[fx.Node]:
        return iter(self.claimed)

    def __len__(self) -> int:
        return len(self.claimed)

    def decisions(self, *, stage: str = "partition") -> list[Decision]:
        """Return why nodes were refused: one decision for each operator and reason.

        Args:
            stage: The stage that the decisions name.
        """
        groups: dict[tuple[str, str], list[fx.Node]] = collections.defaultdict(list)
        for node, reason in self.refused.items():
            groups[name_of(node.target), reason].append(node)
        return [
            Decision(
                stage=stage,
                subject=name,
                action="refuse",
                code="not-claimed",
                detail=f"{reason}; {len(nodes)} node{'s' if len(nodes) > 1 else ''}, first {nodes[0].name}",
                source=aot_core.source_line(nodes[0]),
            )
            for (name, reason), nodes in groups.items()
        ]


def claim(
    graph_module: fx.GraphModule,
    *,
    skip_ops: Collection[Any] = (),
    allow: Collection[str] = (),
    refuse: Refuse | None = None,
) -> Claims:
    """Claim the nodes of a graph that the op set covers.

    Args:
        graph_module: A joint, forward, backward or inference graph of ATen operators, its nodes with
            ``meta["val"]``. Not changed.
        skip_ops: Operators that are never claimed: ``"aten.add"``, ``"aten.add.Tensor"``, or the objects
            ``torch.ops.aten.add`` and ``torch.ops.aten.add.Tensor``.
        allow: What is claimed only on request: ``"matmul"``, ``"linear"``, ``"sdpa"``.
        refuse: What an executor can't do although the op set has it; see `aot_partition.executors.Executor`.

    Returns:
        Each calling node, claimed or refused with a reason.

    Raises:
        UnknownOperatorError: ``skip_ops`` or ``allow`` name something that does not exist.
    """
    unknown = sorted(set(allow) - set(OPTIONS))
    if unknown:
        raise UnknownOperatorError(f"allow expects names among {', '.join(OPTIONS)}; got {unknown[0]!r}.")
    skipped = skipped_overloads(skip_ops)
    claimed: dict[fx.Node, Nvprim] = {}
    refused: dict[fx.Node, str] = {}
    for node in graph_module.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            verdict = _judge(node, claimed, refused, skipped, allow, refuse)
            if isinstance(verdict, Nvprim):
                claimed[node] = verdict
            else:
                refused[node] = verdict
    return Claims(claimed, refused)


def _judge(
    node: fx.Node,
    claimed: dict[fx.Node, Nvprim],
    refused: dict[fx.Node, str],
    skipped: Collection[Any],
    allow: Collection[str],
    refuse: Refuse | None,
) -> Nvprim | str:
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return claimed.get(source) or refused.get(source, "a part of an input")
    if node.target in skipped:
        return "named in skip_ops"
    entry = nvprim_of(node.target)
    if entry is None:
        return "a number, not a tensor" if _is_number(node) else "not in the op set"
    if entry.option is not None and entry.option not in allow:
        return f"claimed only with {entry.option}=True"
    reason = check_tensors(node)
    if reason is None and entry.rule is not None:
        reason = entry.rule(node)
    if reason is None and entry.kind is not Kind.WRITE and _compat.is_mutation(node):
        reason = "it writes an argument"
    if reason is None and refuse is not None:
        reason = refuse(node)
    return reason or entry


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), _compat.NUMBERS)


def name_of(target: Any) -> str:
    """Return what to call an operator in a message: ``aten.add.Tensor``."""
    return str(target) if _compat.is_overload(target) else getattr(target, "__name__", str(target))


def skipped_overloads(skip_ops: Iterable[Any]) -> frozenset[Any]:
    """Return the overloads that names and operators stand for.

    Raises:
        UnknownOperatorError: one is no operator of torch.
    """
    found: set[Any] = set()
    for op in skip_ops:
        resolved = _compat.find_operator(op) if isinstance(op, str) else op
        if _compat.is_packet(resolved):
            found.update(getattr(resolved, overload) for overload in resolved.overloads())
        elif _compat.is_known_operator(resolved):
            found.add(resolved)
        else:
            raise UnknownOperatorError(
                f"skip_ops expects operators such as 'aten.add', 'aten.add.Tensor' or torch.ops.aten.add, got {op!r}."
            )
    return frozenset(found)
