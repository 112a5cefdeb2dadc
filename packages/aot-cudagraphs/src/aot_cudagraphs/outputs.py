"""How what a recording computed reaches the caller.

A replay writes its outputs to the same addresses each time. What becomes of an output is decided by what it is, once,
when the recording is made:

===================================  =====================================================================
an input                             the caller's own tensor
a view of an input                   that view, of the caller's own tensor
for the caller, ``outputs="clone"``  a copy in memory of its own
for the caller, ``outputs="pool"``   the memory itself, which the lane keeps for as long as it is held
for a later recording of the step    the memory itself, without owning it: it may be reused once it was read
anything that is no tensor           itself
===================================  =====================================================================

Outputs that share memory go on sharing it: they are copied together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.engine import Engine
from aot_cudagraphs.lanes import Block, Producer
from aot_cudagraphs.strided import bytes_of, empty_like_strided, layout_of, tensor_in

__all__ = ["Destination", "OutputPlan", "clone_together", "plan_outputs", "view_of_argument"]

Destination = Literal["caller", "held", "passed"]
"""Where an output goes: to the caller; to an operation between islands, which may keep it; or to later recordings of
the same step only, the saved activations among them."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """An output that is an input."""

    position: int


@dataclasses.dataclass(frozen=True)
class ArgumentView:
    """An output that is a view of an input: ``offset`` elements further on."""

    position: int
    offset: int
    like: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Constant:
    """An output that is the same in each call of this recording."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Shown:
    """An output that is handed out where it lies."""

    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Cloned:
    """An output that is copied: by itself, or with the others of a group that share its memory."""

    tensor: torch.Tensor
    group: int | None


@dataclasses.dataclass(frozen=True)
class OutputPlan:
    """What becomes of each output of one recording.

    Args:
        outputs: One of the above for each output.
        groups: Positions of outputs that are copied together.
        blocks: The memory that is handed out.
    """

    outputs: tuple[Argument | ArgumentView | Constant | Shown | Cloned, ...]
    groups: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]


def plan_outputs(
    outputs: list[Any],
    recorded_with: Sequence[Any],
    destinations: Sequence[Destination],
    *,
    clone: bool,
    disposable: bool,
    engine: Engine,
    producer: Producer,
    lane_inputs: Collection[int] = (),
    given_away: Collection[int] = (),
) -> OutputPlan:
    """Decide what becomes of the outputs of a recording.

    Args:
        outputs: What the recording returned. The caller drops it afterwards.
        recorded_with: The inputs that it was made with.
        destinations: Where each output goes.
        clone: Copy what goes to the caller, rather than hand out the memory itself.
        disposable: What goes to later recordings only may be given to them to write to.
        engine: Who recorded.
        producer: The recording, as the lane knows it.
        lane_inputs: Positions of the inputs that lie in the lane: one that goes to the caller is copied.
        given_away: Positions of the inputs whose memory the recording may have written to. None is returned.
    """
    inputs: dict[int, int] = {}
    for i, value in enumerate(recorded_with):
        if isinstance(value, torch.Tensor) and value.numel() and i not in given_away:
            inputs.setdefault(value.untyped_storage().data_ptr(), i)
    made: dict[int, list[int]] = {}
    plans: list[Any] = []
    for i, output in enumerate(outputs):
        found = _input_of(output, recorded_with, inputs)
        of_lane = isinstance(found, (Argument, ArgumentView)) and found.position in lane_inputs
        if of_lane and destinations[i] == "caller":
            found = Cloned(engine.unowned(output), None)
        plans.append(found)
        if found is None:
            made.setdefault(_compat.storage_key(output.untyped_storage()), []).append(i)
    groups: list[tuple[int, ...]] = []
    blocks: list[Block] = []
    for members in made.values():
        kinds = {destinations[i] for i in members}
        owner = outputs[members[0]].untyped_storage()
        copied = clone and "caller" in kinds
        # What is copied right after the replay, or read by later recordings only, need not be owned meanwhile: its
        # memory may be used again, in the order in which a program would.
        reused = (copied or (disposable and kinds == {"passed"})) and owner.nbytes() > 0
        storage = engine.unowned(bytes_of(owner)).untyped_storage() if reused else owner
        for i in members:
            tensor = tensor_in(storage, outputs[i])
            plans[i] = Cloned(tensor, len(groups) if len(members) > 1 else None) if copied else Shown(tensor)
        if copied and len(members) > 1:
            groups.append(tuple(members))
        if not copied and owner.nbytes():
            blocks.append(Block(storage, owner, producer))
    return OutputPlan(tuple(plans), tuple(groups), tuple(blocks))


def _input_of(output: Any, recorded_with: Sequence[Any], inputs: dict[int, int]) -> Any:
    """Return how an output comes from the inputs, or None if it was made."""
    if not isinstance(output, torch.Tensor):
        return Constant(output)
    for i, value in enumerate(recorded_with):
        if output is value:
            return Argument(i)
    address = output.untyped_storage().data_ptr() if output.numel() else 0
    if address not in inputs:
        return None
    position = inputs[address]
    origin = recorded_with[position]
    offset = output.storage_offset() * output.element_size() - origin.storage_offset() * origin.element_size()
    return ArgumentView(position, offset // output.element_size(), _without_memory(output))


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a tensor looks like, on the device that holds nothing."""
    meta = torch.empty(0, dtype=tensor.dtype, device="meta").as_strided(tensor.size(), tensor.stride())
    return _compat.with_lazy_bits(meta, like=tensor)


def view_of_argument(argument: torch.Tensor, offset: int, like: torch.Tensor) -> torch.Tensor:
    """Return the view of an input that the graph returned of what it was recorded with.

    Args:
        argument: The caller's tensor.
        offset: Elements of ``like``'s dtype from the start of the one to the start of the other.
        like: Tells dtype, sizes, strides and lazy bits.
    """
    if argument.dtype == like.dtype:
        start = argument.storage_offset() + offset
        return _compat.with_lazy_bits(argument.as_strided(like.size(), like.stride(), start), like=like)
    start = argument.storage_offset() * argument.element_size() // like.element_size() + offset
    bare = torch.empty(0, dtype=like.dtype, device=argument.device)
    storage = argument.untyped_storage()
    bare.set_(storage, start, like.size(), like.stride())
    return _compat.with_lazy_bits(bare, like=like)


def clone_together(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Return a function that copies tensors that share one storage into one new storage, sharing alike."""
    storage = tensors[0].untyped_storage()
    first = min(one.storage_offset() * one.element_size() for one in tensors)
    first -= first % 16
    last = max((one.storage_offset() + layout_of(one).span) * one.element_size() for one in tensors)
    memory = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    memory.set_(storage, first, (last - first,), (1,))
    places = [(one, one.storage_offset() - first // one.element_size()) for one in tensors]

    def clone() -> list[torch.Tensor]:
        fresh = memory.clone().untyped_storage()
        return [_placed(fresh, offset, one) for one, offset in places]

    return clone


def _placed(storage: torch.UntypedStorage, offset: Any, like: torch.Tensor) -> torch.Tensor:
    bare = torch.empty(0, dtype=like.dtype, device=like.device)
    bare.set_(storage, offset, like.size(), like.stride())
    return _compat.with_lazy_bits(bare, like=like)


def clone_alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, whatever they are."""
    fresh = empty_like_strided(tensor)
    layout = layout_of(tensor)
    layout.writable(fresh).copy_(layout.writable(tensor))
    return fresh
