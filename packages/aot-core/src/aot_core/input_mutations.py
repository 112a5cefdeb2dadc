"""Writes to inputs, taken out of a graph and done after it.

Before, as AOTAutograd leaves the writes that autograd must not see::

    def forward(x, w):
        y = x + 1
        copy_ = aten.copy_(x, y)
        return y * w

After, functional as compilers want it::

    def forward(x, w):
        y = x + 1
        return y * w, y              # and the caller copies the last output into x

Left to AOTAutograd, a write under ``no_grad`` would be done by a ``copy_`` that autograd records, which cuts
the history of the input (seen in torch 2.10 and 2.13 with ``keep_inference_input_mutations=False``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aot_core.boxed_calls import boxed
from aot_core.protocol import BoxedCallable

__all__ = ["lift_input_mutations_", "write_inputs_after"]


def lift_input_mutations_(gm: fx.GraphModule) -> list[int]:
    """Turn the writes to inputs at the end of a graph into further outputs, in place.

    Args:
        gm: A forward or inference graph, functional but for ``copy_`` into its inputs.

    Returns:
        Positions of the inputs to write, one for each output that was added, in order.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    position = {node: i for i, node in enumerate(placeholders)}
    writes = [
        node
        for node in gm.graph.nodes
        if node.target is torch.ops.aten.copy_.default and node.args[0] in position
    ]
    if not writes:
        return []
    output = gm.graph.output_node()
    returned: Any = output.args[0]
    output.args = ((*returned, *(node.args[1] for node in writes)),)
    written = [position[node.args[0]] for node in writes]
    for node in writes:
        # Where an output is the input itself, AOTAutograd looks at no value and returns the input.
        node.replace_all_uses_with(node.args[1])
        gm.graph.erase_node(node)
    gm.recompile()
    return written


def write_inputs_after(compiled: BoxedCallable, written: list[int]) -> BoxedCallable:
    """Return ``compiled`` with its last outputs copied into inputs instead of being returned."""

    def call_and_write(args: list[Any]) -> Any:
        targets = [args[i] for i in written]
        outputs = list(compiled(args))
        values = outputs[-len(written) :]
        del outputs[-len(written) :]
        with torch.no_grad():
            for target, value in zip(targets, values, strict=True):
                target.copy_(value)
        return outputs

    return boxed(call_and_write)
