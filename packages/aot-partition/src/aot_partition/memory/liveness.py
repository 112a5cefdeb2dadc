"""Simulate how much memory one training step takes: forward graph, what it saves, backward graph.

The graphs run node by node on eager kernels, as boxed code: a value is freed after its last use. What the
caller holds all the time (parameters, buffers, the inputs of the model) is static and counted apart. Held
during the whole backward are the forward's own outputs and the tangents::

    bytes │      ╭─╮ forward peak            ╭──╮ backward peak
          │   ╭──╯ ╰──╮ saved, outputs    ╭──╯  ╰───╮
          │ ──╯       ╰───────────────────╯         ╰─── gradients
          └──────────────────────────────────────────────── nodes

Storages, not tensors, are counted: a view costs nothing, and keeps what it views alive as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import fx

from aot_partition.memory.storages import StorageMap

__all__ = ["NodeMemory", "StepMemory", "simulate_step"]

Scratch = Callable[[fx.Node], int]


@dataclasses.dataclass(frozen=True)
class NodeMemory:
    """Memory around one node of a step. All in bytes, without what is static.

    Args:
        name: Name of the node.
        during: Live while it runs: everything before it, and its outputs.
        live: Live after it, when the values that it used last are freed.
        scratch: What its kernel allocates inside and frees before it returns.
    """

    name: str
    during: int
    live: int
    scratch: int = 0

    @property
    def peak(self) -> int:
        """The most that is allocated while the node runs."""
        return self.during + self.scratch


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """What one training step allocates, node by node. All in bytes.

    Args:
        forward: Each node of the forward graph that runs something, in order.
        backward: The same of the backward graph.
        static_bytes: Held by the caller before the step and after it: parameters, buffers, inputs. Not part
            of any other number.
        saved_bytes: Held between forward and backward for the backward alone.
        output_bytes: The forward's own outputs, which the caller holds.
        tangent_bytes: Gradients of those, which autograd holds during the backward.
        gradient_bytes: What the backward returns.
    """

    forward: tuple[NodeMemory, ...]
    backward: tuple[NodeMemory, ...]
    static_bytes: int
    saved_bytes: int
    output_bytes: int
    tangent_bytes: int
    gradient_bytes: int

    @property
    def forward_peak(self) -> int:
        """The most that is allocated at any moment of the forward, scratch included."""
        return max((node.peak for node in self.forward), default=0)

    @property
    def backward_start(self) -> int:
        """Live when the backward begins: saved values, outputs and tangents."""
        return self.saved_bytes + self.output_bytes + self.tangent_bytes

    @property
    def backward_peak(self) -> int:
        """The most that is allocated at any moment of the backward, scratch included."""
        return max((node.peak for node in self.backward), default=self.backward_start)

    @property
    def peak(self) -> int:
        """The most that is allocated at any moment of the step, scratch included, static memory not."""
        return max(self.forward_peak, self.backward_start, self.backward_peak)

    @property
    def peak_without_scratch(self) -> int:
        """The most that values of the graphs take at any moment."""
        nodes = (*self.forward, *self.backward)
        return max((node.during for node in nodes), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data, peaks included."""
        return dataclasses.asdict(self) | {
            "forward_peak": self.forward_peak,
            "backward_peak": self.backward_peak,
            "peak": self.peak,
            "peak_without_scratch": self.peak_without_scratch,
        }


def simulate_step(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    num_fwd_outputs: int,
    *,
    scratch: Scratch | None = None,
) -> StepMemory:
    """Simulate the memory of one training step.

    Args:
        forward: Graph whose outputs are the user's, then what the backward needs. Nodes carry
            ``meta["val"]``.
        backward: Graph whose placeholders bear the names of the forward's nodes that they stand for;
            those that name none are tangents.
        num_fwd_outputs: How many leading outputs of the forward are the user's.
        scratch: Bytes that the kernel of a node allocates inside, see
            `aot_partition.memory.KernelProfile.scratch`. By default none.

    Returns:
        Bytes live at every node of both graphs. Sizes that are symbolic count at their hints.
    """
    scratch = scratch or (lambda node: 0)
    storages = StorageMap()
    storages.add(forward.graph)
    static = _storages_of(storages, (n for n in forward.graph.nodes if n.op in ("placeholder", "get_attr")))
    returned = _returned(forward)
    outputs = _storages_of(storages, returned[:num_fwd_outputs]) - static
    saved = _storages_of(storages, returned[num_fwd_outputs:]) - static - outputs
    forward_memory = _run(
        forward, storages, held=static | outputs | saved, counted_from=set(static), scratch=scratch
    )

    placeholders = backward.graph.find_nodes(op="placeholder")
    forward_nodes = {node.name: node for node in forward.graph.nodes}
    storages.add(
        backward.graph,
        {node: forward_nodes[node.name] for node in placeholders if node.name in forward_nodes},
    )
    tangents = _storages_of(storages, (node for node in placeholders if node.name not in forward_nodes))
    static |= _storages_of(storages, backward.graph.find_nodes(op="get_attr"))
    tangents -= static | outputs
    # A value that the forward saves and no node of the backward uses stays to the end.
    gradients = _storages_of(storages, _returned(backward))
    read = {s for node in backward.graph.nodes if node.op != "placeholder" for s in storages.read_by(node)}
    held = static | outputs | tangents | gradients | (saved - read)
    backward_memory = _run(
        backward,
        storages,
        held=held,
        counted_from=set(static),
        scratch=scratch,
        live=outputs | saved | tangents,
    )

    def total(group: Iterable[int]) -> int:
        return sum(storages.sizes[storage] for storage in group)

    return StepMemory(
        forward=forward_memory,
        backward=backward_memory,
        static_bytes=total(static),
        saved_bytes=total(saved),
        output_bytes=total(outputs),
        tangent_bytes=total(tangents),
        gradient_bytes=total(gradients - static),
    )


def _run(
    gm: fx.GraphModule,
    storages: StorageMap,
    *,
    held: set[int],
    counted_from: set[int],
    scratch: Scratch,
    live: set[int] | None = None,
) -> tuple[NodeMemory, ...]:
    """Run through a graph. ``held`` outlives it; ``counted_from`` is no part of any count."""
    dying = _dying_after(gm, storages, held)
    live = set(live or ()) - counted_from
    known = live | counted_from
    current = sum(storages.sizes[storage] for storage in live)
    timeline = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        for storage in storages.of(node):
            if storage not in known:
                known.add(storage)
                current += storages.sizes[storage]
        during = current
        for storage in dying.get(node, ()):
            current -= storages.sizes[storage]
            known.discard(storage)
        timeline.append(NodeMemory(node.name, during, current, scratch(node)))
    return tuple(timeline)


def _dying_after(gm: fx.GraphModule, storages: StorageMap, held: set[int]) -> Mapping[fx.Node, list[int]]:
    """Map each node to the storages that nobody uses after it."""
    last: dict[int, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        for storage in (*storages.of(node), *storages.read_by(node)):
            last[storage] = node
    dying: dict[fx.Node, list[int]] = {}
    for storage, node in last.items():
        if storage not in held:
            dying.setdefault(node, []).append(storage)
    return dying


def _returned(gm: fx.GraphModule) -> list[Any]:
    result: Any = gm.graph.output_node().args[0]
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _storages_of(storages: StorageMap, values: Iterable[Any]) -> set[int]:
    return {s for value in values if isinstance(value, fx.Node) for s in storages.of(value)}
