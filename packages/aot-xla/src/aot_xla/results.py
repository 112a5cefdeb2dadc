"""Where each output of a graph goes: what a caller gets is on the device and in the memory order of the trace.

::

    graph output                         what the caller gets
    an input                             that very input
    None, or a number                    the same
    a value saved for the backward       it stays on XLA
    a value promised on XLA              as it is
    a value promised on the CPU          a copy there, with the strides that the trace promised
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_xla import _compat
from aot_xla.device import Device
from aot_xla.partition import saved_positions
from aot_xla.tally import Tally

__all__ = ["ResultPlan", "plan_results"]


@dataclasses.dataclass(frozen=True)
class _Input:
    position: int


@dataclasses.dataclass(frozen=True)
class _Literal:
    value: Any


@dataclasses.dataclass(frozen=True)
class _Computed:
    index: int
    promise: torch.Tensor | None  # a fake tensor; None for a value that stays where it is


@dataclasses.dataclass(frozen=True)
class ResultPlan:
    """What to do with what a graph computes.

    Attributes:
        computed: The nodes that have to be computed, each once.
    """

    computed: tuple[fx.Node, ...]
    _outputs: tuple[_Input | _Literal | _Computed, ...]

    def deliver(
        self, inputs: Sequence[Any], values: Sequence[Any], device: Device, tally: Tally
    ) -> tuple[Any, ...]:
        """Return the outputs of a call.

        Args:
            inputs: As the caller passed them.
            values: Of the nodes in `computed`: tensors on the device, or numbers.
            device: Where they are.
            tally: Where transfers are counted.
        """
        awaited = {o.index for o in self._outputs if isinstance(o, _Computed) and o.promise is not None}
        indices = [i for i in sorted(awaited) if isinstance(values[i], torch.Tensor)]
        fetched = device.download([values[i] for i in indices])
        tally.add_transfers("from_xla", fetched)
        at_home = dict(zip(indices, fetched, strict=True))
        outputs: list[Any] = []
        for output in self._outputs:
            if isinstance(output, _Input):
                outputs.append(inputs[output.position])
            elif isinstance(output, _Literal):
                outputs.append(output.value)
            elif output.promise is not None and output.index in at_home:
                outputs.append(_as_promised(at_home[output.index], output.promise))
            else:
                outputs.append(values[output.index])
        return tuple(outputs)


def plan_results(gm: fx.GraphModule, device: Device) -> ResultPlan:
    """Decide where each output of a graph goes.

    Args:
        gm: As traced, its nodes with ``meta["val"]``, its saved values marked by the partitioner.
        device: Where it will compute.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    saved = saved_positions(gm)
    computed: dict[fx.Node, int] = {}
    outputs: list[_Input | _Literal | _Computed] = []
    returned: Any = gm.graph.output_node().args[0]
    for position, node in enumerate(returned):
        if not isinstance(node, fx.Node):
            outputs.append(_Literal(node))
        elif node.op == "placeholder":
            outputs.append(_Input(placeholders.index(node)))
        else:
            promise = node.meta.get("val")
            stays = position in saved or not isinstance(promise, torch.Tensor) or device.holds(promise)
            outputs.append(
                _Computed(computed.setdefault(node, len(computed)), None if stays else promise)
            )
    return ResultPlan(tuple(computed), tuple(outputs))


def _as_promised(value: torch.Tensor, promise: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor on the CPU as the trace promised it: device, and memory order.

    The trace may know sizes by symbols only; then the order of its strides is what counts.
    """
    if promise.layout is torch.strided and value.dim() > 1:
        wanted = promise.stride()
        if not all(isinstance(stride, int) for stride in wanted) or not _is_dense(value.size(), wanted):
            wanted = _dense_strides(value.size(), [_compat.hint(stride) for stride in wanted])
        if wanted != value.stride():
            value = torch.empty_strided(value.size(), wanted, dtype=value.dtype).copy_(value)
    return value if promise.device.type == "cpu" else value.to(promise.device)


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Tell whether strides fill memory without gaps or overlaps."""
    expected = 1
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n != 1):
        if step != expected:
            return False
        expected *= n
    return True


def _dense_strides(size: Sequence[int], hints: Sequence[int | None]) -> tuple[int, ...]:
    """Return strides without gaps, in the order of others; 0 and unknown ones leave a dimension where it stands."""
    if any(not hint for hint in hints):
        order = list(range(len(size)))
    else:
        order = sorted(range(len(size)), key=lambda dim: -(hints[dim] or 0))
    strides, step = [0] * len(size), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(size[dim], 1)
    return tuple(strides)
