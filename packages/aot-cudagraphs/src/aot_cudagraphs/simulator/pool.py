"""Memory at addresses that are given out again: what CUDA's caching allocator does for a pool of graphs.

A pool takes segments from the system and cuts blocks out of them. A block that its tensors have left is joined with
its free neighbours and given to the next tensor that fits. Sizes are the allocator's: blocks are multiples of 512
bytes, those up to 1 MiB lie in segments of 2 MiB, larger ones in segments of 20 MiB, or of their own from 10 MiB on.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import mmap
import threading
import weakref
from collections.abc import Iterable, Iterator

import torch

__all__ = ["POISON", "Range", "SimulatedPool", "held_bytes", "poison", "segment_at", "subtract"]

KIB, MIB = 1 << 10, 1 << 20
BLOCK_UNIT = 512
SMALL_LIMIT = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT_LIMIT = 10 * MIB
OWN_SEGMENT_UNIT = 2 * MIB

POISON = 0xFF
"""The byte that fills memory whose contents nobody may rely on: NaN as a float, -1 as an integer."""

Range = tuple[int, int]
"""An address and a number of bytes."""


class Segment:
    """A piece of memory that a pool took from the system."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.free: list[Range] = [(self.address, size)]
        self.used_bytes = 0
        self.live: dict[int, int] = {}
        # Where tensors that died leave their address. They die anywhere, at any time, the garbage collector's
        # included; appending is all that is done then.
        self.given_back: collections.deque[int] = collections.deque()
        with _registry_lock:
            _segments.add(self)

    def __contains__(self, address: int) -> bool:
        return self.address <= address < self.address + self.size

    def collect(self) -> int:
        """Make the memory of dead tensors free; return how many bytes that were."""
        collected = 0
        while self.given_back:
            address = self.given_back.popleft()
            size = self.live.pop(address)
            collected += size
            self.free = list(_joined([*self.free, (address, size)]))
        return collected

    def best_fit(self, size: int) -> Range | None:
        """Return the smallest free range of at least this many bytes."""
        return min((each for each in self.free if each[1] >= size), key=lambda each: each[1], default=None)

    def take(self, chosen: Range, size: int) -> int:
        """Cut a block off the start of a free range; return its address."""
        address, room = chosen
        self.free.remove(chosen)
        if room > size:
            self.free.append((address + size, room - size))
        self.live[address] = size
        self.used_bytes = max(self.used_bytes, address + size - self.address)
        return address

    def storage(self, address: int, nbytes: int, *, owned: bool) -> torch.UntypedStorage:
        """Return a storage on a block of this segment; the block is given back when an owned one dies."""
        block = _block_type(nbytes).from_buffer(self.memory, address - self.address)
        if owned:
            weakref.finalize(block, _give_back, self, address).atexit = False
        return torch.frombuffer(block, dtype=torch.uint8).untyped_storage()


def _give_back(segment: Segment, address: int) -> None:
    segment.given_back.append(address)


_registry_lock = threading.RLock()
_segments: weakref.WeakSet[Segment] = weakref.WeakSet()
_pools: weakref.WeakSet[SimulatedPool] = weakref.WeakSet()


def held_bytes() -> int:
    """Return how many bytes all pools of this process hold, and tensors of pools that are gone."""
    with _registry_lock:
        pools = list(_pools)
    for pool in pools:
        pool.collect()
    with _registry_lock:
        return sum(segment.size for segment in _segments)


def segment_at(address: int) -> Segment | None:
    """Return the segment that an address lies in, of whichever pool, or None."""
    with _registry_lock:
        return next((segment for segment in _segments if address in segment), None)


@functools.cache
def _block_type(nbytes: int) -> type[ctypes.Array[ctypes.c_ubyte]]:
    # A subclass, since plain ctypes arrays take no weak references.
    return type("Block", (ctypes.Array,), {"_type_": ctypes.c_ubyte, "_length_": nbytes})


class SimulatedPool:
    """A pool of memory for recordings of the simulator."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.peak_bytes = 0
        self._allocated = 0
        self._users = 0
        # Recordings leave when the garbage collector says so, perhaps in the midst of an allocation.
        self._departures: collections.deque[None] = collections.deque()
        self._lock = threading.Lock()
        self._journal: list[Range] | None = None
        with _registry_lock:
            _pools.add(self)

    def allocate(self, nbytes: int) -> torch.UntypedStorage:
        """Return a storage of new memory, which is given back when its last tensor dies.

        Args:
            nbytes: Its size in bytes, at least 1.
        """
        size = -(-nbytes // BLOCK_UNIT) * BLOCK_UNIT
        with self._lock:
            self._collect()
            segment, chosen = self._find(size)
            address = segment.take(chosen, size)
            self._allocated += size
            self.peak_bytes = max(self.peak_bytes, self._allocated)
            if self._journal is not None:
                self._journal.append((address, size))
        return segment.storage(address, nbytes, owned=True)

    def _find(self, size: int) -> tuple[Segment, Range]:
        small = size <= SMALL_LIMIT
        fits = [
            (chosen, segment)
            for segment in self.segments
            if (segment.size == SMALL_SEGMENT) is small and (chosen := segment.best_fit(size)) is not None
        ]
        if fits:
            chosen, segment = min(fits, key=lambda fit: fit[0][1])
            return segment, chosen
        segment = Segment(_segment_size(size))
        self.segments.append(segment)
        return segment, segment.free[0]

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the system, in use or not."""
        with self._lock:
            self._collect()
            return sum(segment.size for segment in self.segments)

    @property
    def allocated_bytes(self) -> int:
        """Bytes in blocks that tensors occupy now."""
        with self._lock:
            self._collect()
            return self._allocated

    def owns(self, address: int) -> bool:
        """Tell whether an address lies in this pool."""
        return any(address in segment for segment in self.segments)

    def live(self) -> list[Range]:
        """Return the blocks that tensors occupy now."""
        with self._lock:
            self._collect()
            return [block for segment in self.segments for block in segment.live.items()]

    def acquire(self) -> None:
        """Note that one more recording uses this pool."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Note that one recording less uses this pool; the last one leaves nothing but what tensors occupy."""
        self._departures.append(None)
        self.collect()

    def collect(self) -> None:
        """Take back what dead tensors occupied, unless this pool is just being used."""
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def start_journal(self) -> None:
        """Start to note which blocks are given out."""
        self._journal = []

    def stop_journal(self) -> list[Range]:
        """Return the blocks that were given out since `start_journal`."""
        journal, self._journal = self._journal, None
        return list(dict.fromkeys(journal or ()))

    def _collect(self) -> None:
        self._allocated -= sum(segment.collect() for segment in self.segments)
        while self._departures:
            self._departures.popleft()
            self._users -= 1
        if self._users == 0:
            for segment in [segment for segment in self.segments if not segment.live]:
                # Tensors that do not own their memory may still show it: it stays mapped for them.
                poison([(segment.address, segment.used_bytes)])
                self.segments.remove(segment)


def _segment_size(size: int) -> int:
    if size <= SMALL_LIMIT:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT_LIMIT:
        return LARGE_SEGMENT
    return -(-size // OWN_SEGMENT_UNIT) * OWN_SEGMENT_UNIT


def poison(ranges: Iterable[Range]) -> None:
    """Fill memory with `POISON`."""
    for address, size in ranges:
        ctypes.memset(address, POISON, size)


def subtract(ranges: Iterable[Range], removed: Iterable[Range]) -> list[Range]:
    """Return the parts of ranges that lie in none of the removed ones."""
    left = list(_joined(ranges))
    for hole, hole_size in removed:
        end = hole + hole_size
        parts = []
        for address, size in left:
            parts.append((address, min(size, hole - address)))
            start = max(address, end)
            parts.append((start, address + size - start))
        left = [(address, size) for address, size in parts if size > 0]
    return left


def _joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield ranges in order, touching and overlapping ones as one."""
    current: Range | None = None
    for address, size in sorted(ranges):
        if current is not None and address <= current[0] + current[1]:
            current = (current[0], max(current[1], address + size - current[0]))
            continue
        if current is not None:
            yield current
        current = (address, size)
    if current is not None:
        yield current
