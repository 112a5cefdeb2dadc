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

__all__ = ["disposable_inputs", "inputs_read_by_storage", "returned_inputs"]


Origin = tuple[fx.Node, ...]
"""Where memory comes from: an input or the operation that took it; of an island's, the call and then that."""


class _Origins:
    """For each node of a graph, the origins of the memory in which its value may lie."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.of: dict[fx.Node, frozenset[Origin]] = {}
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr", "call_module"):
                self.of[node] = frozenset(((node,),))
            elif node.op != "output":
                self.of[node] = self._of_call(gm, node)

    def _of_call(self, gm: fx.GraphModule, node: fx.Node) -> frozenset[Origin]:
        if node.target is operator.getitem:
            source: Any = node.args[0]
            return (
                self._of_element(gm, source, node.args[1]) if source.op == "call_module" else self.of[source]
            )
        own = frozenset(((node,),))
        if _returns_new_memory(node.target):
            return own
        return own.union(*(self.of[operand] for operand in node.all_input_nodes))

    def _of_element(self, gm: fx.GraphModule, call: fx.Node, index: Any) -> frozenset[Origin]:
        """Return the origins of one output of an island, as the graph that calls it sees them."""
        island: Any = gm.get_submodule(str(call.target))
        inside = _Origins(island)
        given = dict(zip(_placeholders(island), call.args, strict=True))
        found: set[Origin] = set()
        for origin in inside.of[island.graph.output_node().args[0][index]]:
            operand = given.get(origin[0])
            found |= self.of[operand] if isinstance(operand, fx.Node) else {(call, *origin)}
        return frozenset(found)


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _returns_new_memory(target: Any) -> bool:
    if not _compat.is_operator(target):
        return False
    schema = target._schema
    marked = any(result.alias_info is not None for result in schema.returns)
    # An implementation may return its argument where there is nothing to do.
    unmarked = schema.name in _MAY_RETURN_ARGUMENT or _compat.has_tag(target, "maybe_aliasing_or_mutating")
    return not marked and not unmarked and schema.name.startswith(("aten::", "prims::"))


_MAY_RETURN_ARGUMENT = (
    "aten::_unsafe_view",
    "aten::lift_fresh",
    "aten::reshape",
    "aten::contiguous",
    "aten::to",
)


def returned_inputs(gm: Any) -> list[frozenset[int]]:
    """Return for each output of a graph the positions of the inputs in whose memory it may lie."""
    origins = _Origins(gm)
    position = {node: i for i, node in enumerate(_placeholders(gm))}
    leaves = _compat.pytree.tree_leaves(gm.graph.output_node().args[0])
    return [
        frozenset(position[origin[0]] for origin in origins.of[leaf] if origin[0] in position)
        if isinstance(leaf, fx.Node)
        else frozenset()
        for leaf in leaves
    ]


_BY_STORAGE = ("aten::as_strided", "aten::as_strided_", "aten::as_strided_copy", "aten::as_strided_scatter")


def inputs_read_by_storage(gm: fx.GraphModule) -> frozenset[int]:
    """Return the positions of the inputs of which a graph may read more than their elements.

    ``as_strided`` counts from the start of the storage, and sees what lies between the elements and around them.
    """
    origins = _Origins(gm)
    position = {node: i for i, node in enumerate(_placeholders(gm))}
    return frozenset(
        position[origin[0]]
        for node in gm.graph.nodes
        if node.op == "call_function"
        and _compat.is_operator(node.target)
        and node.target._schema.name in _BY_STORAGE
        for origin in origins.of[node.args[0]]
        if origin[0] in position
    )


def disposable_inputs(gm: fx.GraphModule) -> dict[str, frozenset[int]]:
    """Return for each island of a graph the positions of its inputs whose memory nothing reads after it.

    Args:
        gm: A graph that calls islands as submodules, see `aot_cudagraphs.partition`.
    """
    origins = _Origins(gm)
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    last_use: dict[Origin, int] = {}
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
