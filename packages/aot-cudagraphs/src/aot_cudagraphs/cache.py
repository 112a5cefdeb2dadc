"""The recordings of one island: one entry for each key it is called with, the least recently used one first to go."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from aot_cudagraphs.lanes import Lane
    from aot_cudagraphs.module import Recorded

__all__ = ["Entry", "RecordingCache", "State"]

MAX_ENTRIES = 256
"""Keys remembered at once, those without a recording included: a number that changes with each call makes many."""

CHURN = 4
"""After so many evictions for each graph that may be kept, new keys are not recorded any more."""


class State(enum.Enum):
    """What becomes of calls with one key."""

    WARMING_UP = "warming up"
    """They run uncaptured, until there have been enough."""
    CAPTURABLE = "capturable"
    """They are replayed; in a lane that has no recording yet, recorded first."""
    UNCAPTURED = "uncaptured"
    """They run uncaptured: a capture was refused, or is not worth its memory."""


@dataclasses.dataclass(eq=False)
class Entry:
    """What is known of calls with one key.

    Args:
        state: What becomes of them.
        calls: How many have run uncaptured to warm up.
        recorded: The recording in each lane.
        lost: Lanes in which the recording has had to go, since an input had moved.
        copied: Positions of inputs that are not read in place any more.
        shared_outputs: Outputs stay in memory of their own, for recordings made later to read.
    """

    state: State = State.WARMING_UP
    calls: int = 0
    recorded: dict[Lane, Recorded] = dataclasses.field(default_factory=dict)
    lost: set[Lane] = dataclasses.field(default_factory=set)
    copied: set[int] = dataclasses.field(default_factory=set)
    shared_outputs: bool = False
    _addresses: dict[int, int] = dataclasses.field(default_factory=dict)
    _moves: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def note_warm_up(self, args: Sequence[Any]) -> None:
        """Count a call, and note which inputs have stayed where they were."""
        self.calls += 1
        self._note_addresses(args)

    def read_in_place(self, args: Sequence[Any]) -> set[int]:
        """Return the positions of the inputs that are worth reading in place.

        Those that have been where they are in each call so far, parameters in any case.
        """
        self._note_addresses(args)
        tensors = (i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor))
        return {i for i in tensors if i not in self.copied}

    def _note_addresses(self, args: Sequence[Any]) -> None:
        for i, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                address = arg.data_ptr()
                if self._addresses.setdefault(i, address) != address and not isinstance(arg, torch.nn.Parameter):
                    self.copied.add(i)

    def note_moved(self, moved: Sequence[int], args: Sequence[Any]) -> None:
        """Note that inputs that were read in place are elsewhere now: they are copied from here on.

        A parameter is allowed one move, such as ``load_state_dict(assign=True)`` makes.
        """
        for i in moved:
            self._moves[i] += 1
            if not isinstance(args[i], torch.nn.Parameter) or self._moves[i] > 1:
                self.copied.add(i)


class RecordingCache:
    """Entries by key.

    Args:
        max_graphs: How many recordings are kept.

    Attributes:
        evictions: How many recordings have had to go.
    """

    def __init__(self, max_graphs: int) -> None:
        self.evictions = 0
        self._max_graphs = max_graphs
        self._entries: collections.OrderedDict[Hashable, Entry] = collections.OrderedDict()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return sum(len(entry.recorded) for entry in self)

    def entry(self, key: Hashable) -> Entry:
        """Return the entry of a key, a new one if need be, as the most recently used."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
            if self.churning:
                entry.state = State.UNCAPTURED
            while len(self._entries) > MAX_ENTRIES:
                oldest = next((k for k, known in self._entries.items() if not known.recorded), None)
                if oldest is None or oldest == key:
                    break
                del self._entries[oldest]
        self._entries.move_to_end(key)
        return entry

    @property
    def churning(self) -> bool:
        """Tell whether recordings have come and gone too often for another to be worth it."""
        return self.evictions >= CHURN * self._max_graphs

    def to_evict(self) -> Iterator[Recorded]:
        """Yield the recordings that are too many, the least recently used first."""
        surplus = len(self) - self._max_graphs
        candidates = [recorded for entry in self for recorded in entry.recorded.values()]
        for recorded in candidates:
            if surplus <= 0:
                return
            if recorded.evictable:
                surplus -= 1
                yield recorded

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
