"""A partition made once more, along the interface of the first.

Before, a joint graph traced anew::

    joint'(primals, tangents) -> (outputs, gradients)

After, for a forward of the first trace that has run already::

    forward'(primals) -> (outputs, saved)       the same values, in the same order
    backward'(saved, tangents) -> gradients     what it needs beyond ``saved``, it computes from them

Values of the two traces are matched by how they are computed, not by name: node names are given in the order
of tracing, so that one name can mean two things.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from aot_core.errors import BackwardAutocastError

__all__ = ["PartitionInterface", "cut_along"]

aten = torch.ops.aten

_REMEDY = "Call .backward() under the autocast state in which it was first called."


@dataclasses.dataclass(frozen=True)
class PartitionInterface:
    """What passes from a forward graph to its backward graph, as expressions of the forward's inputs.

    Args:
        saved: What the forward returns after its own outputs.
        backward_inputs: The backward graph's inputs, in order: saved values, and tangents.
    """

    saved: tuple[str, ...]
    backward_inputs: tuple[str, ...]

    @classmethod
    def of(
        cls, forward: fx.GraphModule, backward: fx.GraphModule, *, num_fwd_outputs: int
    ) -> PartitionInterface:
        """Read the interface off a partition."""
        expressions = {node.name: expression for node, expression in _expressions(forward.graph)}
        returned: Any = forward.graph.output_node().args[0]
        saved = (str(value) for value in returned[num_fwd_outputs:])
        inputs = (node.name for node in backward.graph.nodes if node.op == "placeholder")
        return cls(
            tuple(expressions.get(name, name) for name in saved),
            tuple(expressions.get(name, name) for name in inputs),
        )


def cut_along(
    joint: fx.GraphModule, interface: PartitionInterface, *, num_fwd_outputs: int
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Partition a joint graph so that forward and backward meet at a given interface.

    Args:
        joint: Joint graph with the forward that gave the interface, and another backward.
        interface: Where to cut.
        num_fwd_outputs: How many leading outputs belong to the forward.

    Returns:
        A forward and a backward graph.

    Raises:
        BackwardAutocastError: the backward needs a value that the interface does not lead to.
    """
    located: dict[str, fx.Node] = {}
    for node, expression in _expressions(joint.graph):
        located.setdefault(expression, node)
    for expression in (*interface.saved, *interface.backward_inputs):
        if expression not in located:
            raise BackwardAutocastError(
                "The backward can't be traced again: a value that the forward saved does not occur in it. "
                f"{_REMEDY}"
            )
    result: Any = joint.graph.output_node().args[0]
    outputs = list(result)
    descriptions = list(joint.graph.output_node().meta.get("desc", [None] * len(outputs)))
    placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
    primals = [node for node in placeholders if not node.name.startswith("tangents")]
    saved = [located[expression] for expression in interface.saved]
    returned = outputs[:num_fwd_outputs] + saved
    forward = _extract(joint, primals, returned, descriptions[:num_fwd_outputs] + [None] * len(saved))
    backward = _extract(
        joint,
        [located[expression] for expression in interface.backward_inputs],
        outputs[num_fwd_outputs:],
        descriptions[num_fwd_outputs:],
        drawn_before=_ancestors(returned),
    )
    return forward, backward


def _expressions(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """Yield each node with a digest of how it is computed from the placeholders."""
    digests: dict[fx.Node, str] = {}
    draws = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            digests[node] = node.name
        elif node.op != "output":
            arguments = fx.map_arg((node.args, node.kwargs), lambda n: _Digest(digests[n]))
            text = f"{node.op} {node.target} {arguments!r}"
            if _is_random(node):
                # Two draws of one distribution are two values.
                draws += 1
                text += f" draw {draws}"
            digests[node] = hashlib.sha256(text.encode()).hexdigest()
        if node in digests:
            yield node, digests[node]


class _Digest(str):
    """Stands for a node in the text of an expression, told from a string argument by its ``repr``."""

    def __repr__(self) -> str:
        return f"%{self}"


def _extract(
    joint: fx.GraphModule,
    inputs: list[fx.Node],
    outputs: list[Any],
    descriptions: list[Any],
    *,
    drawn_before: Collection[fx.Node] = (),
) -> fx.GraphModule:
    """Return the part of a graph that leads from ``inputs``, which may stand anywhere in it, to ``outputs``.

    Random values among ``drawn_before`` must come in as inputs: they can't be drawn again.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in inputs:
        _undo_views(graph, node, copies)
    needed = _ancestors(outputs, stop=set(copies))
    for node in joint.graph.nodes:
        if node not in needed or node in copies:
            continue
        if node.op == "placeholder":
            raise BackwardAutocastError(
                f"The backward under this autocast state needs {node.name!r}, which was not saved. {_REMEDY}"
            )
        if node in drawn_before and _is_random(node):
            raise BackwardAutocastError(
                f"The backward under this autocast state would draw {node.name!r} anew. {_REMEDY}"
            )
        copies[node] = graph.node_copy(node, copies.__getitem__)
    result = graph.output([copies[x] if isinstance(x, fx.Node) else x for x in outputs])
    result.meta["desc"] = descriptions
    graph.eliminate_dead_code()
    return fx.GraphModule(joint, graph)


def _undo_views(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> None:
    """Add to ``copies`` what an input is a view of.

    A partitioner may save the transpose of a weight in place of the weight: one is as good as the other.
    """
    while (inverse := _inverse_of(node)) is not None:
        target, arguments = inverse
        base = node.all_input_nodes[0]
        if base in copies:
            return
        copies[base] = graph.call_function(target, (copies[node], *arguments))
        copies[base].meta = dict(base.meta)
        node = base


def _inverse_of(node: fx.Node) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the operator and its further arguments that turn a view back into what it views, or None."""
    if node.op != "call_function" or len(node.all_input_nodes) != 1:
        return None
    arguments = node.args[1:]
    if node.target is aten.t.default or node.target is aten.transpose.int:
        return node.target, arguments
    if node.target is aten.permute.default:
        order: Any = arguments[0]
        rank = len(order)
        places = sorted(range(rank), key=lambda i: order[i] % rank)
        return node.target, (places,)
    base = node.all_input_nodes[0].meta.get("val")
    if node.target in (aten.view.default, aten.reshape.default, aten.unsqueeze.default) and base is not None:
        size = list(base.size())
        if all(isinstance(n, int) for n in size):
            return aten.reshape.default, (size,)
    return None


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _ancestors(outputs: Sequence[Any], *, stop: Collection[fx.Node] = ()) -> set[fx.Node]:
    found: set[fx.Node] = set()
    pending = [x for x in outputs if isinstance(x, fx.Node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            if node not in stop:
                pending.extend(node.all_input_nodes)
    return found
