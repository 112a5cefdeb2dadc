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


class Acquaintance:
    """What is known of the inputs of calls that look alike, wherever they lie.

    Attributes:
        calls: How many have run uncaptured to warm up.
        copied: Positions of inputs that are not read in place, or not any more.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.copied: set[int] = set()
        self._addresses: dict[int, int] = {}
        self._moves: collections.Counter[int] = collections.Counter()

    def note(self, args: Sequence[Any]) -> None:
        """Note which inputs have stayed where they were. A parameter is trusted to."""
        for i, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                address = arg.data_ptr()
                stayed = self._addresses.setdefault(i, address) == address
                if not stayed and not isinstance(arg, torch.nn.Parameter):
                    self.copied.add(i)

    def note_moved(self, moved: Sequence[int], args: Sequence[Any]) -> None:
        """Note that inputs that were read in place are elsewhere now: they are copied from here on.

        A parameter is allowed one move, such as ``load_state_dict(assign=True)`` makes.
        """
        for i in moved:
            self._moves[i] += 1
            if not isinstance(args[i], torch.nn.Parameter) or self._moves[i] > 1:
                self.copied.add(i)


@dataclasses.dataclass(eq=False)
class Entry:
    """What becomes of calls with one key.

    Args:
        known: What is known of their inputs.
        state: What becomes of them.
        recorded: The recording in each lane.
        lost: Lanes in which the recording has had to go, since an input had moved.
        shared_outputs: Outputs stay in memory of their own, for recordings made later to read.
    """

    known: Acquaintance
    state: State = State.WARMING_UP
    recorded: dict[Lane, Recorded] = dataclasses.field(default_factory=dict)
    lost: set[Lane] = dataclasses.field(default_factory=set)
    shared_outputs: bool = False


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
        self._known: collections.OrderedDict[Hashable, Acquaintance] = collections.OrderedDict()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return sum(len(entry.recorded) for entry in self)

    def entry(self, looks: Hashable, place: Hashable) -> Entry:
        """Return the entry of calls whose inputs look and lie alike, as the most recently used."""
        key = (looks, place)
        entry = self._entries.get(key)
        if entry is None:
            known = self._known.setdefault(looks, Acquaintance())
            entry = self._entries[key] = Entry(known)
            self._forget_oldest(key)
        self._entries.move_to_end(key)
        return entry

    def _forget_oldest(self, newest: Hashable) -> None:
        while len(self._entries) > MAX_ENTRIES:
            unrecorded = (key for key, entry in self._entries.items() if not entry.recorded and key != newest)
            oldest = next(unrecorded, None)
            if oldest is None:
                break
            del self._entries[oldest]
        while len(self._known) > MAX_ENTRIES:
            self._known.popitem(last=False)

    @property
    def churning(self) -> bool:
        """Tell whether recordings have come and gone too often for another to be worth it."""
        return self.evictions >= CHURN * self._max_graphs

    @property
    def full(self) -> bool:
        """Tell whether another recording would be one too many."""
        return len(self) >= self._max_graphs

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
        self._known.clear()
