"""A region of a graph as a `Definition`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Definition, Recorder, Value
from aot_partition.nvfuser.emitter import Drawings, Emitter
from aot_partition.nvfuser.layouts import Layout, layout_of, memory_order
from aot_partition.nvfuser.rules import rules
from aot_partition.nvfuser.sizes import Sizes

__all__ = ["Translation", "translate"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Translation:
    """What a region became.

    Attributes:
        definition: The fusion.
        inputs: What it is given, in order: tensors and numbers. A seed and an offset follow if it draws.
        outputs: What it returns, in order.
        drawings: How many of its nodes draw random numbers.
    """

    definition: Definition
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    drawings: int


def translate(
    inputs: Sequence[fx.Node],
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    layouts: Sequence[Layout] | None = None,
) -> Translation:
    """Say nodes of a graph to nvFuser.

    Args:
        inputs: What the fusion is given: tensors and numbers, in the order in which they will be passed.
        nodes: What it computes, in order; each is claimed. ``copy_`` writes one of ``inputs``.
        outputs: Which of them it returns, each once.
        layouts: How the tensors among the inputs lie in memory; by default as their fake tensors do.

    Returns:
        The fusion. Its tensors have open sizes, and the layouts of the inputs' fake tensors.
    """
    recorder = Recorder()
    sizes = Sizes(recorder)
    drawings = Drawings(recorder)
    values: dict[fx.Node, Any] = {}
    tensors = [node for node in inputs if isinstance(node.meta["val"], torch.Tensor)]
    laid = layouts if layouts is not None else [_traced_layout(node) for node in tensors]
    _define_inputs(recorder, sizes, inputs, dict(zip(tensors, laid, strict=True)), values)
    known = rules()
    written: list[fx.Node] = []
    for node in nodes:
        if node.target is aten.copy_.default:
            written.append(node)
            continue
        emitter = Emitter(node, recorder, sizes, values, drawings)
        values[node] = known[node.target].emit(emitter, *node.args, **node.kwargs)
    laid_out = any(each.stride_order for each in (*laid, *map(_traced_layout, outputs)))
    for node in outputs:
        recorder.add_output(_in_memory_order(recorder, values[node], node) if laid_out else values[node])
    for node in written:
        emitter = Emitter(node, recorder, sizes, values, drawings)
        value = known[node.target].emit(emitter, *node.args, **node.kwargs)
        target: Any = node.args[0]
        recorder.add_output(value, values[target])
    return Translation(recorder.finish(), tuple(inputs), tuple(outputs), drawings.count)


def _traced_layout(node: fx.Node) -> Layout:
    fake = node.meta["val"]
    return layout_of(fake.shape, fake.stride())


def _define_inputs(
    recorder: Recorder,
    sizes: Sizes,
    inputs: Sequence[fx.Node],
    layouts: Mapping[fx.Node, Layout],
    values: dict[fx.Node, Any],
) -> None:
    """Define what a fusion is given, and tell of the symbols that can be read from it."""
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            layout = layouts[node]
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
