"""A region of a graph as a `Definition`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Definition, Recorder, Value
from aot_partition.nvfuser.emitter import Emitter
from aot_partition.nvfuser.layouts import layout_of, memory_order
from aot_partition.nvfuser.rules import rules
from aot_partition.nvfuser.sizes import Sizes

__all__ = ["define_inputs", "translate"]


def translate(
    inputs: Sequence[fx.Node], nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]
) -> Definition:
    """Say nodes of a graph to nvFuser.

    Args:
        inputs: What the fusion is given: tensors and numbers, in the order in which they will be passed.
        nodes: What it computes, in order; each is claimed.
        outputs: Which of them it returns, each once.

    Returns:
        The definition. Its tensors have open sizes, and the layouts of the inputs' fake tensors.
    """
    recorder = Recorder()
    sizes = Sizes(recorder)
    values: dict[fx.Node, Any] = {}
    define_inputs(recorder, sizes, inputs, values)
    known = rules()
    for node in nodes:
        emitter = Emitter(node, recorder, sizes, values)
        values[node] = known[node.target].emit(emitter, *node.args, **node.kwargs)
    laid_out = any(_is_permuted(node) for node in (*inputs, *outputs))
    for node in outputs:
        recorder.add_output(_in_memory_order(recorder, values[node], node) if laid_out else values[node])
    return recorder.finish()


def define_inputs(
    recorder: Recorder, sizes: Sizes, inputs: Sequence[fx.Node], values: dict[fx.Node, Any]
) -> None:
    """Define what a fusion is given, and tell of the symbols that can be read from it."""
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            layout = layout_of(value.shape, value.stride())
            values[node] = recorder.define_tensor(
                shape=layout.shape,
                contiguity=layout.contiguity,
                stride_order=layout.stride_order,
                dtype=value.dtype,
                is_cpu=value.device.type == "cpu" and value.dim() == 0,
            )
            sizes.add_tensor(value.shape, values[node])
        else:
            values[node] = recorder.define_input(torch.int64)
            sizes.add_number(value, values[node])


def _is_permuted(node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and layout_of(value.shape, value.stride()).stride_order is not None


def _in_memory_order(recorder: Recorder, value: Value, node: fx.Node) -> Value:
    """Say in which order an output's dimensions lie: nvFuser would else guess it from the inputs."""
    fake = node.meta["val"]
    order = memory_order(fake.shape, fake.stride())
    if len(order) < 2:
        return value
    places = [0] * len(order)
    for place, i in enumerate(reversed(order)):
        places[i] = place
    made: Value = recorder.ops.stride_order(value, tuple(places))
    return made
