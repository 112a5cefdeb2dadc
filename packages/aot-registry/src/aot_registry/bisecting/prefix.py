"""Cuts a graph in two: the first steps, and the rest, which together do what the graph does.

Before::

    a = relu(x); b = a + 1; c = a * b; return (c, a)

After a cut behind two steps::

    first(x): a = relu(x); b = a + 1; return (None, a, b)
    rest(x, a, b): c = a * b; return (c, a)

The first graph returns what the whole one returns, at the same places, where it has it already. Compilers look at the
places of outputs: some belong to the user, others are saved for the backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

__all__ = ["Cut", "Step", "copy_graph", "legal_cuts", "steps"]

Step = list[fx.Node]
"""An operation with the nodes that take its results apart."""

_NOT_STEPS = ("placeholder", "get_attr", "output")
_OPENS, _CLOSES = ("_enter_", "_increment_nesting"), ("_exit_", "_decrement_nesting")


def steps(gm: fx.GraphModule) -> list[Step]:
    """Return the operations of a graph in order."""
    found: list[Step] = []
    seen: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.op not in _NOT_STEPS and node not in seen:
            step = _with_parts(node)
            seen.update(step)
            found.append(step)
    return found


def legal_cuts(gm: fx.GraphModule) -> list[int]:
    """Return after how many steps a graph can be cut, the number of all steps included.

    Not where a value that is no tensor would have to pass from one graph to the other, nor inside a region such as
    that of an autocast or of another grad mode.
    """
    all_steps = steps(gm)
    last_use = {}
    for index, step in enumerate(all_steps):
        for node in step:
            for used in node.all_input_nodes:
                last_use[used] = index
    for used in _output(gm).all_input_nodes:
        last_use[used] = len(all_steps)
    legal, depth, grad_modes = [], 0, [True]
    alive: list[fx.Node] = []
    for index, step in enumerate(all_steps):
        name = getattr(step[0].target, "__name__", str(step[0].target))
        depth += name.startswith(_OPENS) or name.endswith(_OPENS)
        depth -= name.startswith(_CLOSES) or name.endswith(_CLOSES)
        if name == "_set_grad_enabled":
            grad_modes.append(bool(step[0].args[0]))
        alive = [node for node in (*alive, *step) if last_use.get(node, -1) > index]
        settled = depth == 0 and (len(grad_modes) == 1 or grad_modes[-1])
        if settled and all(_can_pass(node) for node in alive):
            legal.append(index + 1)
    if not legal or legal[-1] != len(all_steps):
        legal.append(len(all_steps))
    return legal


class Cut:
    """A graph cut behind its first ``count`` steps.

    Attributes:
        first: The graph of these steps; it takes the inputs of the whole graph.
    """

    first: fx.GraphModule

    def __init__(self, gm: fx.GraphModule, count: int) -> None:
        all_steps = steps(gm)
        before = {node for step in all_steps[:count] for node in step}
        outputs = _output(gm)
        places: list[fx.Node | None] = [
            each if isinstance(each, fx.Node) and each in before else None for each in _flat(outputs.args[0])
        ]
        needed = [used for step in all_steps[count:] for node in step for used in node.all_input_nodes]
        needed += outputs.all_input_nodes
        crossing = [node for node in dict.fromkeys(needed) if node in before]
        given = {node for node in places if node is not None}
        places += [node for node in crossing if node not in given]
        self._place = {node: place for place, node in enumerate(places) if node is not None}
        self._crossing = crossing
        self.first = _first(gm, all_steps[:count], places)
        self._rest = _rest(gm, all_steps[count:], crossing)

    def joined(self, first: Callable[..., Any]) -> Callable[[list[Any]], Any]:
        """Return a function of the whole graph's inputs, for what was made of the first graph.

        Args:
            first: Takes the inputs one by one and returns the first graph's outputs.
        """

        def run(args: Sequence[Any]) -> Any:
            inputs = list(args)
            results = first(*inputs)
            return self._rest(*inputs, *(results[self._place[node]] for node in self._crossing))

        return run


def copy_graph(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of its own with the same nodes, names and metadata; parameters and submodules are shared."""
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    node = graph.output(output)
    node.meta = dict(_output(gm).meta)
    return fx.GraphModule(gm, graph)


def _first(gm: fx.GraphModule, kept: Sequence[Step], places: Sequence[fx.Node | None]) -> fx.GraphModule:
    graph, copies = _begun(gm, kept)
    for node in (node for step in kept for node in step):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(None if node is None else copies[node] for node in places))
    return fx.GraphModule(gm, graph)


def _rest(gm: fx.GraphModule, kept: Sequence[Step], crossing: Sequence[fx.Node]) -> fx.GraphModule:
    graph, copies = _begun(gm, kept, crossing)
    for node in (node for step in kept for node in step):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.node_copy(_output(gm), copies.__getitem__)
    return fx.GraphModule(gm, graph)


def _begun(
    gm: fx.GraphModule, kept: Sequence[Step], crossing: Sequence[fx.Node] = ()
) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Return a graph with the inputs of another, those that cross, and the attributes that its nodes need."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            copies[node] = graph.node_copy(node)
    for node in crossing:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    used = {used for step in kept for node in step for used in node.all_input_nodes}
    used.update(_output(gm).all_input_nodes)
    for node in gm.graph.nodes:
        if node.op == "get_attr" and node in used:
            copies[node] = graph.node_copy(node)
    return graph, copies


def _with_parts(node: fx.Node) -> Step:
    parts = [user for user in node.users if user.target is operator.getitem and user.args[0] is node]
    return [node, *(each for part in parts for each in _with_parts(part))]


def _can_pass(node: fx.Node) -> bool:
    """Tell whether a value can be an output of a graph."""
    value = node.meta.get("val", node.meta.get("example_value"))
    return isinstance(value, (torch.Tensor, torch.SymInt))


def _output(gm: fx.GraphModule) -> fx.Node:
    output: fx.Node = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    return output


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
