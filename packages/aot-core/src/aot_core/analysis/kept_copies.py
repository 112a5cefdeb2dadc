"""Copies that a model makes of its inputs, kept where a forward graph saves or returns them.

Before::

    def forward(x):                     # the caller's x is then overwritten with the first output
        y = x.t()
        return x.sin(), y.sin(), y      # the model returns y.clone(), or the backward reads it

After::

    def forward(x):
        y = x.t()
        return x.sin(), y.sin(), y.clone()

Tracing, Inductor's passes over the joint graph and partitioning leave the ``clone`` out (torch 2.10 to 2.13): the
caller, or the backward, reads what was written since. Autograd notices that in what is saved of an input, and not of
the base that several inputs were merged into.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aot_core._compat import pytree
from aot_core.analysis.view_makers import add_copy, find_makers

__all__ = ["keeping_copies"]


def keeping_copies(partition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``partition_fn`` that cuts as ``partition`` does, and keeps the copies that a model makes."""

    @functools.wraps(partition)
    def run(
        joint: fx.GraphModule, inputs: Any, *args: Any, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        # Read before: a partitioner may change the graph, and may have its passes change it first.
        written = _written_inputs(joint.graph)
        own = _outputs_apart(joint.graph, num_fwd_outputs)
        forward, backward = partition(joint, inputs, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
        _copy_(forward, num_fwd_outputs, written, own)
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


def _outputs_apart(joint: fx.Graph, count: int) -> set[int]:
    """Return which of a joint graph's first ``count`` outputs lie in no input's memory."""
    makers = find_makers(joint)
    values: Any = joint.output_node().args[0]
    return {
        i
        for i, value in enumerate(pytree.tree_leaves(values)[:count])
        if isinstance(value, fx.Node)
        and isinstance(value.meta.get("val"), torch.Tensor)
        and makers[value].op != "placeholder"
    }


def _copy_(forward: fx.GraphModule, count: int, written: set[str], own: set[int]) -> None:
    """Copy what a forward graph returns or saves where it lies in an input.

    Args:
        forward: Changed.
        count: How many outputs are returned; the others are saved.
        written: Inputs of which no view is to be saved.
        own: Outputs that are returned, and are to lie in no input.
    """
    graph = forward.graph
    makers = find_makers(graph)
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.output_node()
    values: Any = list(output.args[0])  # type: ignore[arg-type]
    for i, value in enumerate(values):
        if not isinstance(value, fx.Node) or makers[value].op != "placeholder":
            continue
        if i in own or (i >= count and makers[value].name in written):
            if value not in copies:
                copies[value] = add_copy(value)
            values[i] = copies[value]
    if copies:
        output.args = (tuple(values),)
        forward.recompile()
