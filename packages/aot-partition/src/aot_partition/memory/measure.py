"""Measure with the allocator what `simulate_step` predicts: bytes live at every node of a real step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition._compat import pytree
from aot_partition.memory.liveness import NodeMemory, StepMemory

__all__ = ["AllocationTrace", "measure_step", "trace_allocations"]

_MARK = "aot_partition: "


@dataclasses.dataclass
class AllocationTrace:
    """What the CPU allocator did inside a ``with trace_allocations()`` block.

    Attributes:
        sections: Per call of `mark` how the bytes in use went after it, relative to the start of the block.
            The first section lies before any call, and each begins with the level at which it began.
    """

    sections: list[list[int]] = dataclasses.field(default_factory=list)

    @staticmethod
    def mark() -> None:
        """Begin a section."""
        with torch.profiler.record_function(_MARK):
            pass

    @property
    def peak(self) -> int:
        """The most bytes in use at any moment, relative to the start of the block."""
        return max((max(levels) for levels in self.sections), default=0)


@contextlib.contextmanager
def trace_allocations() -> Iterator[AllocationTrace]:
    """Follow the CPU allocator through a block of code.

    Exact to the byte: these are the allocator's own events, not samples. Only one block at a time in a
    process, since torch has one profiler.

    Yields:
        A trace, which is filled when the block ends.
    """
    trace = AllocationTrace()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        yield trace
    level = 0
    trace.sections.append([0])
    for name, size in _compat.allocation_events(profiler):
        if name == _MARK:
            trace.sections.append([level])
        elif size:
            level += size
            trace.sections[-1].append(level)


def measure_step(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    inputs: Sequence[Any],
    num_fwd_outputs: int,
    *,
    tangents: Sequence[torch.Tensor] | None = None,
) -> StepMemory:
    """Run one step on the CPU, node by node, and measure what each node allocates.

    Args:
        forward: Forward graph.
        backward: Backward graph.
        inputs: What the forward's placeholders stand for, on the CPU.
        num_fwd_outputs: How many leading outputs of the forward are the user's.
        tangents: What the backward's placeholders stand for that name no node of the forward. By default
            ones. Made before the measurement, and counted like the others.

    Returns:
        The record that `simulate_step` predicts: ``live`` and ``during`` as the allocator saw them, and as
        ``scratch`` what it handed out besides.
    """
    from_forward = {node.name for node in forward.graph.nodes}
    asked = [node for node in backward.graph.find_nodes(op="placeholder") if node.name not in from_forward]
    made = list(tangents) if tangents is not None else [_ones(node) for node in asked]
    static = _storages([*inputs, *_attributes(forward), *_attributes(backward)])
    with trace_allocations() as trace:
        returned, forward_new = _run(forward, list(inputs))
        known = {
            value.name: result
            for value, result in zip(_returned(forward), returned, strict=True)
            if isinstance(value, fx.Node)
        }
        for node, value in zip(forward.graph.find_nodes(op="placeholder"), inputs, strict=True):
            known.setdefault(node.name, value)
        outputs = _storages(returned[:num_fwd_outputs], but=static)
        saved = _storages(returned[num_fwd_outputs:], but={**static, **outputs})
        held = returned[:num_fwd_outputs]
        given = iter(made)
        handed = [
            known[node.name] if node.name in known else next(given)
            for node in backward.graph.find_nodes(op="placeholder")
        ]
        del returned, known
        gradients, backward_new = _run(backward, handed)
    del held
    tangent_bytes = sum(_storages(made, but={**static, **outputs}).values())
    split = 1 + len(forward_new)
    return StepMemory(
        forward=_timeline(forward_new, trace.sections[1 : split + 1], 0),
        backward=_timeline(backward_new, trace.sections[split + 1 :], tangent_bytes),
        static_bytes=sum(static.values()),
        saved_bytes=sum(saved.values()),
        output_bytes=sum(outputs.values()),
        tangent_bytes=tangent_bytes,
        gradient_bytes=sum(_storages(gradients, but=static).values()),
    )


def _timeline(
    new: Sequence[tuple[str, int]], sections: Sequence[list[int]], offset: int
) -> tuple[NodeMemory, ...]:
    """Read the sections of a run, one per node and one after the last, as records."""
    timeline = []
    for (name, made), levels in zip(new, sections, strict=False):
        during = levels[0] + made
        timeline.append(
            NodeMemory(name, during + offset, levels[-1] + offset, scratch=max(0, max(levels) - during))
        )
    return tuple(timeline)


def _run(gm: fx.GraphModule, arguments: list[Any]) -> tuple[list[Any], list[tuple[str, int]]]:
    """Run a graph as boxed code does: a value is dropped after its last use.

    Returns:
        The outputs, and per node that ran its name and how many bytes of new storage it returned.
    """
    last_user = {argument: node for node in gm.graph.nodes for argument in node.all_input_nodes}
    last_used: dict[fx.Node, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        # As in generated code, an input that nobody uses stays to the end.
        if node in last_user or node.op != "placeholder":
            last_used.setdefault(last_user.get(node, node), []).append(node)
    environment: dict[fx.Node, Any] = {}
    new: list[tuple[str, int]] = []
    arguments.reverse()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            environment[node] = arguments.pop()
        elif node.op == "output":
            AllocationTrace.mark()
            return list(_fetch(node.args[0], environment)), new
        else:
            AllocationTrace.mark()
            environment[node], made = _call(gm, node, environment)
            new.append((node.name, made))
            for dead in last_used.get(node, ()):
                del environment[dead]
    raise AssertionError("a graph has an output node")


def _call(gm: fx.GraphModule, node: fx.Node, environment: dict[fx.Node, Any]) -> tuple[Any, int]:
    if node.op == "get_attr":
        assert isinstance(node.target, str)
        value: Any = gm
        for name in node.target.split("."):
            value = getattr(value, name)
        return value, 0
    args, kwargs = _fetch((node.args, node.kwargs), environment)
    assert callable(node.target)
    result = node.target(*args, **kwargs)
    return result, sum(_storages(result, but=_storages((args, kwargs))).values())


def _fetch(structure: Any, environment: dict[fx.Node, Any]) -> Any:
    return pytree.tree_map(
        lambda leaf: environment[leaf] if isinstance(leaf, fx.Node) else leaf,
        structure,
        is_leaf=lambda leaf: isinstance(leaf, fx.Node),
    )


def _returned(gm: fx.GraphModule) -> list[Any]:
    result: Any = gm.graph.output_node().args[0]
    return list(result)


def _attributes(gm: fx.GraphModule) -> list[Any]:
    return [*gm.parameters(), *gm.buffers(), *vars(gm).values()]


def _storages(values: Any, but: Iterable[int] = ()) -> dict[int, int]:
    """Map the address of each storage of some values to its bytes."""
    found = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in pytree.tree_leaves(values)
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    }
    return {address: size for address, size in found.items() if address not in but and address}


def _ones(node: fx.Node) -> torch.Tensor:
    example = node.meta["val"]
    size = [_compat.size_hint(n) for n in example.size()]
    stride = [_compat.size_hint(n) for n in example.stride()]
    return torch.empty_strided(size, stride, dtype=example.dtype).fill_(1)
