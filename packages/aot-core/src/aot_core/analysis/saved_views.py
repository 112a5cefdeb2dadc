"""Values that a forward graph saves for its backward, copied where they lie in an input that is written.

Before::

    def forward(x):                     # the caller's x is then overwritten with the first output
        y = x.t()
        return x.sin(), y.sin(), y      # y is saved

After::

    def forward(x):
        y = x.t()
        return x.sin(), y.sin(), y.clone()

The model had a ``clone`` there, which tracing and partitioning left out (torch 2.10 to 2.13): the backward reads what
was written since. Autograd notices that of an input and not of the base that several inputs were merged into.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_core.analysis.view_makers import add_copy, find_makers

__all__ = ["saving_copies"]


def saving_copies(partition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``partition_fn`` that cuts as ``partition`` does, and saves copies where a view would not last."""

    @functools.wraps(partition)
    def run(
        joint: fx.GraphModule, inputs: Any, *args: Any, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        # Read before: a partitioner may change the graph.
        written = _written_inputs(joint.graph)
        forward, backward = partition(joint, inputs, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
        if written:
            _save_copies_(forward, num_fwd_outputs, written)
        return forward, backward

    return run


def _written_inputs(joint: fx.Graph) -> set[str]:
    """Return the names of the inputs of a joint graph that are written: by the graph, or with its outputs."""
    outputs = joint.output_node().meta.get("desc") or ()
    described = [each for desc in outputs if (each := getattr(desc, "mutated_input", None)) is not None]
    copied_to = [
        node.args[0] for node in joint.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    ]
    return {
        node.name
        for node in joint.find_nodes(op="placeholder")
        if node in copied_to or node.meta.get("desc") in described
    }


def _save_copies_(forward: fx.GraphModule, count: int, written: set[str]) -> None:
    """Copy what a forward graph saves, beyond its first ``count`` outputs, of inputs that are written."""
    graph = forward.graph
    makers = find_makers(graph)
    copies: dict[fx.Node, fx.Node] = {}

    def lasting(value: Any) -> Any:
        if not (
            isinstance(value, fx.Node) and makers[value].op == "placeholder" and makers[value].name in written
        ):
            return value
        if value not in copies:
            copies[value] = add_copy(value)
        return copies[value]

    output = graph.output_node()
    values: Any = output.args[0]
    output.args = ((*values[:count], *map(lasting, values[count:])),)
    if copies:
        forward.recompile()
