"""Graphs whose inputs are lists, tuples or dictionaries of tensors.

Before::

    graph(inputs=[a, b], scale) -> outputs

After::

    flat_graph(a, b, scale) -> outputs

AOTAutograd knows flat inputs only. Dynamo flattens by itself; compiled autograd and callers who use a backend
without Dynamo don't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from aot_core._compat import pytree

if TYPE_CHECKING:
    from torch import fx

__all__ = ["FlatGraph", "has_nested_inputs"]


def has_nested_inputs(example_inputs: Sequence[Any]) -> bool:
    """Tell whether an input is a container."""
    return any(isinstance(x, (list, tuple, dict)) for x in example_inputs)


class FlatGraph(torch.nn.Module):
    """A graph over nested inputs, called with their leaves.

    Args:
        gm: The graph.
        example_inputs: Its inputs; only their structure is kept.
    """

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        super().__init__()
        self.gm = gm
        self._spec = pytree.tree_structure(tuple(example_inputs))
        # Compiled autograd gives its tensors away in a list, to be freed as the graph goes on.
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self._given_away = [i for i, node in enumerate(placeholders) if node.meta.get("steal_arg", False)]

    def forward(self, *leaves: Any) -> Any:
        return self.gm(*pytree.tree_unflatten(list(leaves), self._spec))

    def leaves(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the leaves of nested inputs.

        Raises:
            TypeError: their structure is not that of the example inputs.
        """
        leaves, spec = pytree.tree_flatten(tuple(inputs))
        if spec != self._spec:
            raise TypeError(
                f"This graph was compiled for inputs of the structure {self._spec}, got {spec}. "
                "Compile it again for inputs of another structure."
            )
        return leaves

    def accept_nested(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of the leaves into one of the nested inputs."""

        def call_with_leaves(*inputs: Any) -> Any:
            leaves = self.leaves(inputs)
            for index in self._given_away:
                inputs[index].clear()
            return compiled(*leaves)

        return call_with_leaves
