"""Outputs that are one tensor with an input or with an earlier output, told apart from others outside of the graph.

Before::

    def graph(x, y):
        y.mul_(2)
        part = y[1:]
        return x.add_(1), part, part.contiguous()       # contiguous already: the same tensor

After::

    def graph(x, y):
        y.mul_(2)
        x.add_(1)
        part = y[1:]
        return None, part, None                         # and the caller gets x, and the part twice

AOTAutograd makes a view for each output. And it returns a written input itself where the write can stay in the graph,
and puts it in the place of another output if any input's new value is among the outputs: it counts user outputs
without those before them (torch 2.10 to 2.13, silently where the shapes are equal).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_core.aliasing.effects import Effects, find_repeated
from aot_core.graph_copy import copy_graph

__all__ = ["SameTensors", "are_noted", "find_same_tensors"]


@dataclasses.dataclass(frozen=True)
class SameTensors:
    """Outputs that are tensors which the caller has from elsewhere.

    Args:
        returned: Position of an output → position of the input that it is.
        repeated: Position of an output → position of an earlier output that it is.
    """

    returned: dict[int, int]
    repeated: dict[int, int]

    def __bool__(self) -> bool:
        return bool(self.returned or self.repeated)

    def removed_from(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Return a graph that returns None in the place of each."""

        def outputs(values: Any) -> Any:
            gone = {*self.returned, *self.repeated}
            return tuple(None if i in gone else value for i, value in enumerate(values))

        return copy_graph(gm, outputs=outputs)

    def put_back(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does what a graph did before `removed_from`; ``compiled`` does what it does after."""

        def call(*inputs: Any) -> Any:
            outputs = list(compiled(*inputs))
            for i, owner in self.returned.items():
                outputs[i] = inputs[owner]
            for i, earlier in self.repeated.items():
                outputs[i] = outputs[earlier]
            return tuple(outputs)

        return call


def are_noted(gm: fx.GraphModule) -> bool:
    """Tell whether the graph's own fake tensors tell which outputs are the same. Those of Dynamo do."""
    return all(node.op == "placeholder" or "example_value" in node.meta for node in _outputs(gm).values())


def find_same_tensors(gm: fx.GraphModule, effects: Effects | None) -> SameTensors:
    """Find the outputs that are inputs or earlier outputs.

    Args:
        gm: A graph as Dynamo captured it.
        effects: What it does, if that was looked up.
    """
    if effects is not None and effects.unknown is None:
        return SameTensors(effects.returned, effects.repeated)
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    inputs = {
        id(tensor): i for i, node in enumerate(placeholders) if (tensor := _noted_tensor(node)) is not None
    }
    outputs = _outputs(gm)
    tensors = {i: tensor for i, node in outputs.items() if (tensor := _noted_tensor(node)) is not None}
    returned = {i: inputs[id(tensor)] for i, tensor in tensors.items() if id(tensor) in inputs}
    returned |= {i: placeholders.index(node) for i, node in outputs.items() if node.op == "placeholder"}
    repeated = find_repeated([tensors.get(i) for i in range(max(tensors, default=-1) + 1)])
    return SameTensors(returned, repeated)


def _outputs(gm: fx.GraphModule) -> dict[int, fx.Node]:
    """Return the outputs that a node computes, by position; those of a graph that returns no sequence have none."""
    values = gm.graph.output_node().args[0]
    if not isinstance(values, (tuple, list)):
        return {}
    return {i: value for i, value in enumerate(values) if isinstance(value, fx.Node)}


def _noted_tensor(node: fx.Node) -> torch.Tensor | None:
    value = node.meta.get("example_value")
    return value if isinstance(value, torch.Tensor) else None
