"""How the inputs of a call reach a recording, and how what it wrote reaches them.

A recording reads fixed addresses. An input that sits at the address where it sat when the recording was made is read
in place, and nothing is copied: parameters, buffers, activations that the forward left in the same lane. That is
checked in every call. Any other input is copied into memory of the recording's own, its *stand-in*, and what the
graph wrote to a stand-in is copied back.

====================  ==================================================================
tensor                in place, or a stand-in of the same strides
mutated tensor        the same; a stand-in is copied back after the replay
overlapping tensors   stand-ins that overlap alike, if one of them is written
number, None          part of the key: another value is another recording
====================  ==================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Sequence, Set
from typing import Any

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.lanes import Lane
from aot_cudagraphs.strided import Layout, bytes_of, empty_like_strided, layout_of, tensor_in

__all__ = ["InputPlan", "key_of", "overlapping_groups", "plan_inputs", "unsupported_input"]


def unsupported_input(args: Sequence[Any], device: torch.device) -> str | None:
    """Return why no recording can be made on a device for inputs like these, or None."""
    for i, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            if type(arg) not in _PLAIN:
                return f"input {i} is a {type(arg).__name__}"
            if arg.layout is not torch.strided:
                return f"input {i} has the layout {arg.layout}"
            if arg.device != device:
                # Of a number on the host, a graph would keep what it was.
                return f"input {i} lies on {arg.device}, and {device} is captured"
    return None


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def key_of(
    args: Sequence[Any], lane: Lane, mutated: Set[int], by_storage: Collection[int] = ()
) -> tuple[Hashable, Hashable]:
    """Return what two calls must have in common to be served by one recording.

    First what the inputs look like: of a tensor its dtype, sizes, strides, device and lazy bits; of anything else
    type and value; if the graph writes to an input, how they overlap; and of inputs that are read by storage, where in
    it they lie. Second, the addresses of those that lie in
    the lane.
    """
    entries = tuple(map(_entry, args))
    addresses = tuple(
        (i, arg.data_ptr())
        for i, arg in enumerate(args)
        if isinstance(arg, torch.Tensor) and lane.block_of(arg) is not None
    )
    places = tuple((args[i].storage_offset(), args[i].untyped_storage().nbytes()) for i in by_storage)
    return ((entries, _overlaps(args, mutated), places) if mutated or places else entries), addresses


def _entry(arg: Any) -> Hashable:
    if isinstance(arg, torch.Tensor):
        return (
            arg.dtype,
            arg.size(),
            arg.stride(),
            arg.device,
            arg.is_conj(),
            arg.is_neg(),
            arg.is_inference(),
        )
    if isinstance(arg, float):
        # By its bits: 0.0 and -0.0 are equal and differ, nan is not equal to itself and does not.
        return (float, arg.hex())
    if arg is None or isinstance(arg, (bool, int, str, complex, torch.dtype, torch.device)):
        return (type(arg), arg)
    return (type(arg), id(arg))


def overlapping_groups(args: Sequence[Any], mutated: Set[int]) -> list[list[int]]:
    """Return the positions of inputs that share memory of which a part is written, two or more each."""
    by_storage: dict[int, list[int]] = {}
    for i, arg in enumerate(args):
        if isinstance(arg, torch.Tensor) and arg.numel():
            by_storage.setdefault(arg.untyped_storage().data_ptr(), []).append(i)
    return [group for group in by_storage.values() if len(group) > 1 and not mutated.isdisjoint(group)]


def _overlaps(args: Sequence[Any], mutated: Set[int]) -> Hashable:
    return tuple(
        tuple((i, args[i].data_ptr() - args[group[0]].data_ptr()) for i in group)
        for group in overlapping_groups(args, mutated)
    )


@dataclasses.dataclass(frozen=True)
class StandIn:
    """Memory of a recording's own for one input.

    Args:
        tensor: What the graph was recorded with.
        layout: How to copy into it.
        whole: The whole storage is copied, not only the elements.
    """

    tensor: torch.Tensor
    layout: Layout
    whole: bool = False

    @property
    def lazy(self) -> bool:
        """Tell whether it is conjugated or negated on reading."""
        return self.tensor.is_conj() or self.tensor.is_neg()


@dataclasses.dataclass(frozen=True)
class InputPlan:
    """How the inputs of one recording are read and written.

    Args:
        in_place: Positions of the tensors that are read where they are, and their addresses.
        stand_ins: Position and stand-in of each tensor that is copied.
        numbers: Position and value of all that is no tensor.
        written_back: Positions, among the stand-ins, that are copied back.
        written_in_place: Positions of inputs that the graph writes itself, and whose version counter counts it.
        groups: Positions that share memory, where that matters.
        places: Storage offset, and size of the storage in bytes, of the inputs that are read by storage.
    """

    in_place: dict[int, int]
    stand_ins: dict[int, StandIn]
    numbers: dict[int, Any]
    written_back: tuple[int, ...]
    written_in_place: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    places: dict[int, tuple[int, int]]

    @property
    def bytes(self) -> int:
        """Bytes that the stand-ins take."""
        storages = {
            one.tensor.untyped_storage().data_ptr(): one.tensor.untyped_storage().nbytes()
            for one in self.stand_ins.values()
        }
        return sum(storages.values())

    def recorded_with(self, args: Sequence[Any]) -> list[Any]:
        """Return what to record the graph with, for the inputs that this was planned for."""
        return [self.stand_ins[i].tensor if i in self.stand_ins else arg for i, arg in enumerate(args)]

    def moved(self, args: Sequence[Any]) -> list[int]:
        """Return the positions that are read in place and are no longer there."""
        return [i for i, address in self.in_place.items() if args[i].data_ptr() != address]


def plan_inputs(
    args: Sequence[Any],
    in_place: Collection[int],
    mutated: Set[int],
    by_storage: Collection[int] = (),
) -> InputPlan:
    """Decide how inputs are read, and make the stand-ins.

    Args:
        args: The inputs of a call.
        in_place: Positions of the tensors that may be read where they are.
        mutated: Positions that the graph writes.
        by_storage: Positions of inputs of which the graph may read more than the elements.
    """
    tensors = {i: arg for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
    groups = overlapping_groups(args, mutated)
    # Inputs that overlap stay together: a write to one is to be seen through the other.
    apart = {i for group in groups if not in_place_all(group, in_place) for i in group}
    stays = {i: arg.data_ptr() for i, arg in tensors.items() if i in in_place and i not in apart}
    shared = {
        i: tensor for group in groups if apart.issuperset(group) for i, tensor in _memory_for(group, args)
    }
    stand_ins = {}
    for i, arg in tensors.items():
        if i not in stays:
            # An operation that looks at values while it is recorded finds some that it can have.
            if i in by_storage:
                memory = bytes_of(arg.untyped_storage()).clone()
                stand_ins[i] = StandIn(tensor_in(memory.untyped_storage(), arg), layout_of(arg), whole=True)
                continue
            tensor, layout = shared[i] if i in shared else empty_like_strided(arg), layout_of(arg)
            layout.writable(tensor).copy_(layout.writable(arg))
            stand_ins[i] = StandIn(tensor, layout)
    counted = [i for i in mutated if i in stays and not args[i].is_inference()]
    return InputPlan(
        in_place=stays,
        stand_ins=stand_ins,
        numbers={i: arg for i, arg in enumerate(args) if i not in tensors},
        written_back=tuple(sorted(i for i in mutated if i in stand_ins)),
        written_in_place=tuple(sorted(counted)),
        groups=tuple(map(tuple, groups)),
        places={i: (args[i].storage_offset(), args[i].untyped_storage().nbytes()) for i in by_storage},
    )


def in_place_all(group: Sequence[int], in_place: Collection[int]) -> bool:
    """Tell whether all inputs of a group may be read in place."""
    return all(i in in_place for i in group)


def _memory_for(group: Sequence[int], args: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """Return stand-ins that overlap as the inputs do."""
    first = min(args[i].data_ptr() for i in group)
    last = max(args[i].data_ptr() + layout_of(args[i]).span * args[i].element_size() for i in group)
    # Elements of any dtype lie at multiples of their size, from an address that is aligned like the first's.
    lead = first % 16
    memory = torch.empty(lead + last - first, dtype=torch.uint8, device=args[group[0]].device)
    stand_ins = []
    for i in group:
        arg = args[i]
        offset = (lead + arg.data_ptr() - first) // arg.element_size()
        bare = torch.empty(0, dtype=arg.dtype, device=arg.device)
        bare.set_(memory.untyped_storage(), offset, arg.size(), arg.stride())
        stand_ins.append((i, _compat.with_lazy_bits(bare, like=arg)))
    return stand_ins
