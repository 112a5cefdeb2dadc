"""Which values of a graph may share memory, told from the operators' schemas.

Memory of a value may be given to a later recording only when nothing reads it any more, through whatever name::

    a = island_0(x)
    v = aten.view(a, [-1])          the same memory
    b = island_1(a)                 the last use of `a`, but not of its memory
    c = island_2(b, v)
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from aot_cudagraphs import _compat

__all__ = ["disposable_inputs", "returned_inputs"]


class _Origins:
    """For each node, the nodes in whose memory its value may lie: inputs, and results in new memory."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.of: dict[fx.Node, frozenset[fx.Node]] = {}
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.of[node] = frozenset((node,))
            elif node.op == "call_module":
                # Elements of what an island returns are told apart below.
                self.of[node] = frozenset((node,))
            elif node.op != "output":
                self.of[node] = self._of_call(gm, node)

    def _of_call(self, gm: fx.GraphModule, node: fx.Node) -> frozenset[fx.Node]:
        if node.target is operator.getitem:
            source = node.args[0]
            if isinstance(source, fx.Node) and source.op == "call_module":
                island = gm.get_submodule(str(source.target))
                inputs = returned_inputs(island)[int(node.args[1])]  # type: ignore[arg-type]
                shared = (self.of[source.all_input_nodes[i]] for i in _input_positions(source, inputs))
                return frozenset((node,)).union(*shared)
            return self.of[source] if isinstance(source, fx.Node) else frozenset()
        if _returns_new_memory(node.target):
            return frozenset((node,))
        return frozenset((node,)).union(*(self.of[operand] for operand in node.all_input_nodes))


def _input_positions(call: fx.Node, positions: frozenset[int]) -> list[int]:
    operands = call.all_input_nodes
    return [operands.index(call.args[i]) for i in positions if isinstance(call.args[i], fx.Node)]


def _returns_new_memory(target: Any) -> bool:
    if not _compat.is_operator(target):
        return False
    schema = target._schema
    marked = any(result.alias_info is not None for result in schema.returns)
    # An implementation may return its argument where there is nothing to do.
    unmarked = schema.name in _MAY_RETURN_ARGUMENT or _compat.has_tag(target, "maybe_aliasing_or_mutating")
    return not marked and not unmarked and schema.name.startswith(("aten::", "prims::"))


_MAY_RETURN_ARGUMENT = ("aten::_unsafe_view", "aten::lift_fresh", "aten::reshape", "aten::contiguous", "aten::to")


def returned_inputs(gm: Any) -> list[frozenset[int]]:
    """Return for each output of a graph the positions of the inputs in whose memory it may lie."""
    origins = _Origins(gm)
    position = {node: i for i, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    leaves = _compat.pytree.tree_leaves(gm.graph.output_node().args[0])
    return [
        frozenset(position[origin] for origin in origins.of[leaf] if origin in position)
        if isinstance(leaf, fx.Node)
        else frozenset()
        for leaf in leaves
    ]


def disposable_inputs(gm: fx.GraphModule) -> dict[str, frozenset[int]]:
    """Return for each island of a graph the positions of its inputs whose memory nothing reads after it.

    Args:
        gm: A graph that calls islands as submodules, see `aot_cudagraphs.partition`.
    """
    origins = _Origins(gm)
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    last_use: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        for operand in node.all_input_nodes:
            for origin in origins.of[operand]:
                last_use[origin] = order[node]
    found: dict[str, frozenset[int]] = {}
    for node in gm.graph.nodes:
        if node.op != "call_module":
            continue
        # Taking the elements of the result is no use of what they may lie in.
        returned = frozenset().union(*returned_inputs(gm.get_submodule(str(node.target))))
        found[str(node.target)] = frozenset(
            i
            for i, operand in enumerate(node.args)
            if isinstance(operand, fx.Node)
            and i not in returned
            and all(last_use[origin] == order[node] for origin in origins.of[operand])
        )
    return found
