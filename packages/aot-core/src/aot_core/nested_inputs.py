"""Graphs whose inputs are lists, tuples or dictionaries of tensors.

Before::

    def graph(inputs, scale):      # inputs = [a, b]
        return inputs[0] * scale

After::

    def graph(a, b, scale):
        return [a, b][0] * scale

AOTAutograd knows flat inputs only. Dynamo flattens by itself; compiled autograd, and callers who use a
backend without Dynamo, don't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from aot_core._compat import pytree
from aot_core.graph_copy import copy_graph

__all__ = ["FlatInputs", "has_nested_inputs"]


def has_nested_inputs(example_inputs: Sequence[Any]) -> bool:
    """Tell whether an input is a container."""
    return any(isinstance(x, (list, tuple, dict)) for x in example_inputs)


class FlatInputs:
    """A graph over nested inputs, as a graph over their leaves.

    Args:
        gm: The graph. Not changed.
        example_inputs: Its inputs.

    Attributes:
        gm: The graph over the leaves.
        leaves: Those of the example inputs.
    """

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self.leaves, self._spec = pytree.tree_flatten(tuple(example_inputs))
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        # Compiled autograd gives its tensors away in a list, to be freed as the graph goes on.
        self._given_away = [i for i, node in enumerate(placeholders) if node.meta.get("steal_arg", False)]

        def flatten(graph: fx.Graph) -> dict[fx.Node, Any]:
            leaves = [graph.placeholder(f"leaf_{i}") for i in range(len(self.leaves))]
            return dict(zip(placeholders, pytree.tree_unflatten(leaves, self._spec), strict=True))

        self.gm = copy_graph(gm, inputs=flatten)

    def nest(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of the leaves into one of the nested inputs.

        It raises ``TypeError`` for inputs of another structure than the example's.
        """

        def call_with_leaves(*inputs: Any) -> Any:
            leaves, spec = pytree.tree_flatten(inputs)
            if spec != self._spec:
                raise TypeError(
                    f"This graph was compiled for inputs of the structure {self._spec}, got {spec}. "
                    "Compile it again for inputs of another structure."
                )
            for index in self._given_away:
                inputs[index].clear()
            return compiled(*leaves)

        return call_with_leaves
