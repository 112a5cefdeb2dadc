"""Values that Inductor may write into an input's memory, copied where a graph returns them.

Before::

    def graph(x):
        y = x.select_scatter(a, 0, 0)       # x as it is after x[0] = a
        z = y.slice_scatter(b, 0, 1)        # and after x[1:] = b
        x.copy_(z)
        return y

After::

    def graph(x):
        y = x.select_scatter(a, 0, 0)
        kept = y.clone()
        z = y.slice_scatter(b, 0, 1)
        x.copy_(z)
        return kept

Inductor writes ``y`` into ``x`` itself, since ``x`` is written in the end and not read in between, and returns it from
there: with what was written later, and as an alias of the caller's tensor. It takes out the ``clone`` that
the user wrote before it does so (torch 2.10 to 2.13, silently).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from aot_core import _compat
from aot_core.analysis.view_makers import add_copy, find_makers

if TYPE_CHECKING:
    from torch import fx

__all__ = ["keep_returned_writes_"]

_aten = torch.ops.aten

_WRITES = (
    _aten.index_put,
    _aten._unsafe_index_put,
    _aten.as_strided_scatter,
    _aten.diagonal_scatter,
    _aten.select_scatter,
    _aten.slice_scatter,
)
"""Operators that Inductor may replace by a write to their first argument."""


def keep_returned_writes_(graph: fx.Graph) -> None:
    """Have a graph return copies of what Inductor may write into an input. Changes the graph.

    Args:
        graph: As Inductor has it before it brings back the writes: of ATen operators without effects, but for the
            ``copy_`` of new values into inputs, with fake tensors on its nodes.
    """
    written = {
        node.args[0]
        for node in graph.find_nodes(op="call_function", target=_aten.copy_.default)
        if isinstance(node.args[0], torch.fx.Node) and node.args[0].op in ("placeholder", "get_attr")
    }
    if not written:
        return
    makers = find_makers(graph)
    returned = {makers[node]: None for node in graph.output_node().all_input_nodes}
    for value in returned:
        if value not in written and _may_lie_in(value, written, makers):
            _return_copy_of_(value)


def _may_lie_in(value: fx.Node, written: set[Any], makers: dict[fx.Node, fx.Node]) -> bool:
    """Tell whether Inductor may make a value by writing to one of these inputs."""
    seen, todo = {value}, [value]
    while todo:
        new = {makers[node] for node in _written_for(todo.pop())} - seen
        if not written.isdisjoint(new):
            return True
        seen |= new
        todo += new
    return False


def _written_for(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what a node's value may be written to, instead of being made anew."""
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        # Of an operator that the user defined, or of one that works on lists.
        several = node.args[0]
        if _compat.is_higher_order(several.target) or str(several.target).startswith("aten._foreach_"):
            yield from several.all_input_nodes
    elif _is_write(node) and isinstance(node.args[0], torch.fx.Node):
        yield node.args[0]


def _is_write(node: fx.Node) -> bool:
    return getattr(node.target, "overloadpacket", None) in _WRITES


def _return_copy_of_(value: fx.Node) -> None:
    """Have whatever reads a value read a copy, but for what is written next into the same memory."""
    readers = [user for user in value.users if not _is_write(user) and user.target is not _aten.copy_.default]
    copy = add_copy(value)
    for reader in readers:
        reader.replace_input_with(value, copy)
