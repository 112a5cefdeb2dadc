"""Memory for steps in flight, and who may still read it.

A replay writes the same addresses every time. What the last replay left there must have been read by then: outputs
that the caller holds, activations that wait for their backward. A *lane* is the memory of one step: one pool, and
all recordings that were made in it, forward and backward, of every shape::

    lane 0   forward ──────── backward   forward ──────── backward        one step after another: one lane is enough
    lane 1            forward ──────── backward                           begun before the first one's backward

A step takes a lane in which nothing is alive any more, or opens another. So no replay overwrites what is needed, and
as many copies of the memory exist as steps overlap, which is what eager takes too. Within a lane, recordings share
memory as tensors of one program do: what the backward has read of the activations holds its own results.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aot_cudagraphs import _compat

if TYPE_CHECKING:
    from aot_cudagraphs.engine import Engine, Pool

__all__ = ["MAX_LANES", "Block", "Lane", "Lanes", "all_lanes", "held_bytes", "lanes_for", "reset"]

MAX_LANES = 8
"""Steps in flight at once. One more runs uncaptured."""


class Producer(Protocol):
    """A recording, which writes blocks.

    Attributes:
        number: Its own.
        path: Those that its step has replayed before it.
    """

    number: int
    path: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes that it holds outside the pool."""
        ...

    def outdate(self, *, shared: bool) -> None:
        """Have it recorded anew before it is replayed next; if ``shared``, so that its outputs are never given away."""
        ...

    def release(self) -> None:
        """Give its memory back."""
        ...


@dataclasses.dataclass(eq=False, repr=False)
class Block:
    """Memory of a lane that outputs of a recording lie in, and that is handed out.

    Args:
        storage: What is handed out. It may not own the memory.
        owner: What owns the memory; None after it was given to a recording made later, which may overwrite it
            once it has read it.
        producer: Who writes it.
    """

    storage: torch.UntypedStorage
    owner: torch.UntypedStorage | None
    producer: Producer
    address: int = dataclasses.field(init=False)
    _identity: int = dataclasses.field(init=False)
    _own_users: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.address = self.storage.data_ptr()
        self._identity = _compat.storage_key(self.storage)

    def settle(self) -> None:
        """Note that whoever holds the storage now belongs to the recording, and whoever comes later does not."""
        self._own_users = _compat.storage_uses(self.storage)

    @property
    def alive(self) -> bool:
        """Tell whether anyone outside can still read it."""
        return _compat.storage_use_count(self._identity) > self._own_users

    @property
    def disposable(self) -> bool:
        """Tell whether its memory may be given away: what is handed out does not own it."""
        return self.owner is not None and self.owner is not self.storage


class Lane:
    """The memory of one step at a time.

    Attributes:
        pool: Where its recordings' tensors lie.
        live: The blocks that have been handed out since the lane was last found free, by address.
        path: The recordings that have handed them out, by number, in order. A recording writes what was free when it
            was made, so it is replayed after the same recordings only.
        busy: A call is running in it.
        recorded: All that was recorded in it.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.live: dict[int, Block] = {}
        self.path: tuple[int, ...] = ()
        self.busy = False
        self.recorded: list[Producer] = []
        # Steps of one lane may be called for on several streams; what shares memory has to wait for each other.
        self.join_stream: Callable[[], None] = getattr(pool, "join_stream", _nothing_to_join)

    def is_free(self) -> bool:
        """Tell whether a step may begin: no call runs here, and nobody can read what earlier ones left."""
        if self.busy or any(block.alive for block in self.live.values()):
            return False
        self.live.clear()
        self.path = ()
        return True

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """Return the live block that a tensor lies in, or None if it lies elsewhere."""
        return self.live.get(tensor.untyped_storage().data_ptr()) if self.live else None

    def drop(self, recorded: Producer) -> None:
        """Release a recording, and those that could be replayed after it only."""
        for other in [other for other in self.recorded if other is recorded or recorded.number in other.path]:
            self.recorded.remove(other)
            other.release()

    def unowned(self) -> list[Block]:
        """Return the blocks that are alive in memory that the pool could give to a new recording."""
        return [block for block in self.live.values() if block.owner is None and block.alive]

    def release(self) -> None:
        """Give all its memory back."""
        self.live.clear()
        while self.recorded:
            self.recorded.pop().release()


def _nothing_to_join() -> None:
    """Do nothing: what runs on a CPU runs in order."""


class Lanes:
    """The lanes of one compiled graph, shared by its forward and its backward.

    Args:
        engine: Makes their pools.
        device: Where.

    Attributes:
        device: As given.
        lock: Held while a lane is taken or left, and while something is recorded.
    """

    def __init__(self, engine: Engine, device: torch.device) -> None:
        self.lock = threading.RLock()
        self._engine = engine
        self.device = device
        self._lanes: list[Lane] = []
        self._retired: list[Lane] = []

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    def enter(self) -> Lane | None:
        """Take a lane for a step that begins; None if too many are in flight."""
        with self.lock:
            self._sweep()
            lane = next((lane for lane in self._lanes if lane.is_free()), None)
            if lane is None and len(self._lanes) < MAX_LANES:
                lane = Lane(self._engine.new_pool(self.device))
                self._lanes.append(lane)
            if lane is not None:
                lane.busy = True
                lane.join_stream()
            return lane

    def enter_again(self, inputs: Sequence[Any]) -> Lane | None:
        """Take the lane of a step that goes on: the one that its saved values lie in.

        A free one if they lie in none. None if it is not to be had: two threads run one step's backward at a time,
        or the lane is on its way out.
        """
        with self.lock:
            for value in inputs:
                if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                    lane = self._lane_of(value)
                    if lane is not None:
                        if lane.busy or lane in self._retired:
                            return None
                        lane.busy = True
                        lane.join_stream()
                        return lane
            return self.enter()

    def _lane_of(self, tensor: torch.Tensor) -> Lane | None:
        lanes = (*self._lanes, *self._retired)
        return next((lane for lane in lanes if lane.block_of(tensor) is not None), None)

    def leave(self, lane: Lane) -> None:
        """Give a lane up at the end of a call. What was handed out keeps it from being taken."""
        lane.busy = False

    @property
    def held_bytes(self) -> int:
        """Bytes that the pools have taken, and that recordings hold besides."""
        with self.lock:
            self._sweep()
            lanes = tuple(self._all())
            outside = sum(recorded.bytes for lane in lanes for recorded in lane.recorded)
            return outside + sum(lane.pool.reserved_bytes for lane in lanes)

    def reset(self) -> None:
        """Give all memory back; that of a step under way as soon as it is over."""
        with self.lock:
            self._retired += self._lanes
            self._lanes = []
            self._sweep()

    def _all(self) -> Iterable[Lane]:
        return (*self._lanes, *self._retired)

    def _sweep(self) -> None:
        if self._retired:
            over = [lane for lane in self._retired if lane.is_free()]
            self._retired = [lane for lane in self._retired if lane not in over]
            for lane in over:
                lane.release()

    def end_with(self, user: Any) -> None:
        """Give all memory back when an object is gone."""
        weakref.finalize(user, self.reset).atexit = False


_all_lanes: weakref.WeakSet[Lanes] = weakref.WeakSet()


def lanes_for(engine: Engine, device: torch.device, user: Any = None) -> Lanes:
    """Return new lanes that `reset` and `held_bytes` know of, and that end with ``user``."""
    lanes = Lanes(engine, device)
    _all_lanes.add(lanes)
    if user is not None:
        lanes.end_with(user)
    return lanes


def all_lanes() -> list[Lanes]:
    """Return the lanes of all captured graphs of this process."""
    return list(_all_lanes)


def reset() -> None:
    """Give back the memory of all captured graphs of this process. Their next call records anew.

    A step between its forward and its backward keeps its memory until the backward has run.
    """
    for lanes in list(_all_lanes):
        lanes.reset()


def held_bytes() -> int:
    """Return the bytes that captured graphs of this process hold: pools, and copies of inputs."""
    return sum(lanes.held_bytes for lanes in list(_all_lanes))
