"""Where each output of a graph goes: what a caller gets is on the device and in the memory order of the trace.

::

    graph output                         what the caller gets
    an input                             that very input
    None, or a number                    the same
    a value saved for the backward       it stays on XLA
    a value promised on XLA              as it is
    a value promised on the CPU          a copy there, in memory as the trace promised: strides, and what is shared
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_xla.device import Device
from aot_xla.memory_order import lay_out, lay_out_together
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
    at_home: bool = False


@dataclasses.dataclass(frozen=True)
class ResultPlan:
    """What to do with what a graph computes.

    Attributes:
        computed: The nodes that have to be computed, each once.
    """

    computed: tuple[fx.Node, ...]
    _outputs: tuple[_Input | _Literal | _Computed, ...]
    # By index into `computed`: the fake tensors of those that go home, and which of them share memory.
    _promises: dict[int, torch.Tensor]
    _shared: tuple[tuple[int, ...], ...]

    def deliver(
        self, inputs: Sequence[Any], values: Sequence[Any], device: Device, tally: Tally
    ) -> tuple[Any, ...]:
        """Return the outputs of a call.

        Args:
            inputs: As the caller passed them.
            values: Of the nodes in `computed`: tensors or numbers.
            device: Where the tensors are.
            tally: Where transfers are counted.
        """
        at_home = self._fetch(values, device, tally)
        outputs: list[Any] = []
        for output in self._outputs:
            if isinstance(output, _Input):
                outputs.append(inputs[output.position])
            elif isinstance(output, _Literal):
                outputs.append(output.value)
            else:
                outputs.append((at_home if output.at_home else values)[output.index])
        return tuple(outputs)

    def _fetch(self, values: Sequence[Any], device: Device, tally: Tally) -> dict[int, torch.Tensor]:
        """Return the tensors that go home, by index."""
        away = [i for i in self._promises if device.holds(values[i])]
        fetched = device.download([values[i] for i in away])
        tally.add_transfers("from_xla", fetched)
        found = {i: values[i] for i in self._promises} | dict(zip(away, fetched, strict=True))
        for group in self._shared:
            together = lay_out_together([found[i] for i in group], [self._promises[i] for i in group])
            found.update(zip(group, together, strict=True))
        alone = self._promises.keys() - {i for group in self._shared for i in group}
        found.update({i: lay_out(found[i], self._promises[i]) for i in alone})
        return {i: value.to(self._promises[i].device) for i, value in found.items()}


def plan_results(gm: fx.GraphModule, device: Device) -> ResultPlan:
    """Decide where each output of a graph goes.

    Args:
        gm: As traced, its nodes with ``meta["val"]``, its saved values marked by the partitioner.
        device: Where it will compute.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    saved = saved_positions(gm)
    computed: dict[fx.Node, int] = {}
    promises: dict[int, torch.Tensor] = {}
    outputs: list[_Input | _Literal | _Computed] = []
    returned: Any = gm.graph.output_node().args[0]
    for position, node in enumerate(returned):
        if not isinstance(node, fx.Node):
            outputs.append(_Literal(node))
        elif node.op == "placeholder":
            outputs.append(_Input(placeholders.index(node)))
        else:
            index = computed.setdefault(node, len(computed))
            promise = node.meta.get("val")
            at_home = False
            if isinstance(promise, torch.Tensor) and not device.holds(promise) and position not in saved:
                promises[index] = promise
                at_home = True
            outputs.append(_Computed(index, at_home))
    return ResultPlan(tuple(computed), tuple(outputs), promises, _sharing(promises))


def _sharing(promises: dict[int, torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    """Group values that share memory in the trace."""
    by_storage: dict[int, list[int]] = collections.defaultdict(list)
    for index, promise in promises.items():
        if promise.layout is torch.strided:
            by_storage[promise.untyped_storage()._cdata].append(index)
    return tuple(tuple(group) for group in by_storage.values() if len(group) > 1)
