"""Outputs that *are* inputs, handed back outside of the graph.

Before::

    def graph(x, y):
        y.mul_(2)
        return x.add_(1)

After::

    def graph(x, y):
        y.mul_(2)
        x.add_(1)
        return None                 # and the caller gets x

AOTAutograd returns a written input itself where the write can stay in the graph, and puts it in the place of another
output if any input's new value is among the outputs: it counts user outputs without those before them (torch 2.10 to
2.13, silently where the shapes are equal).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from aot_core.aliasing.effects import Effects
from aot_core.graph_copy import copy_graph

__all__ = ["are_noted", "find_returned_inputs", "with_returned_inputs", "without_returned_inputs"]


def are_noted(gm: fx.GraphModule) -> bool:
    """Tell whether the graph's own fake tensors tell which outputs are inputs. Those of Dynamo do."""
    return all(node.op == "placeholder" or "example_value" in node.meta for node in _outputs(gm).values())


def find_returned_inputs(gm: fx.GraphModule, effects: Effects | None) -> dict[int, int]:
    """Return position of an output → position of the input that it is.

    Args:
        gm: A graph as Dynamo captured it.
        effects: What it does, if that was looked up.
    """
    if effects is not None and effects.unknown is None:
        return effects.returned
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    inputs = {
        id(value): i for i, node in enumerate(placeholders) if (value := _noted_tensor(node)) is not None
    }
    found = {}
    for position, node in _outputs(gm).items():
        if node.op == "placeholder":
            found[position] = placeholders.index(node)
        elif id(value := _noted_tensor(node)) in inputs and value is not None:
            found[position] = inputs[id(value)]
    return found


def without_returned_inputs(gm: fx.GraphModule, returned: Mapping[int, int]) -> fx.GraphModule:
    """Return a graph that returns None in the place of each output that is an input."""

    def outputs(values: Any) -> Any:
        return tuple(None if i in returned else value for i, value in enumerate(values))

    return copy_graph(gm, outputs=outputs)


def with_returned_inputs(compiled: Callable[..., Any], returned: Mapping[int, int]) -> Callable[..., Any]:
    """Return a function that does what the graph did that was given to `without_returned_inputs`."""

    def call(*inputs: Any) -> Any:
        outputs = list(compiled(*inputs))
        for i, owner in returned.items():
            outputs[i] = inputs[owner]
        return tuple(outputs)

    return call


def _outputs(gm: fx.GraphModule) -> dict[int, fx.Node]:
    """Return the outputs that a node computes, by position; those of a graph that returns no sequence have none."""
    values = gm.graph.output_node().args[0]
    if not isinstance(values, (tuple, list)):
        return {}
    return {i: value for i, value in enumerate(values) if isinstance(value, fx.Node)}


def _noted_tensor(node: fx.Node) -> torch.Tensor | None:
    value = node.meta.get("example_value")
    return value if isinstance(value, torch.Tensor) else None
