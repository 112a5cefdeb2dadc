"""The planner's view of a training step: operations that read and make storages, without nodes and views.

A forward of operations 0, 1, … runs once. Then the backward's operations run in a given order, and between
them forward operations may run again. What a storage holds is there from the operation that makes it to the
last one that reads it before it is made again::

    position   0   1   2   3 │ 4   5   6   7   8
    runs       f0  f1  f2  f3│ b0  f1  b1  f0  b2        schedule.backward = [~0, 1, ~1, 0, ~2]
    x of f1        ██████    │     ██████                made twice
    y of f2            ██████│██████████                 saved
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Operation", "Problem", "Schedule", "Timeline"]


@dataclasses.dataclass(frozen=True)
class Operation:
    """One kernel call, as far as planning goes.

    Args:
        name: Name of its node.
        reads: Storages that it reads, static ones left out.
        makes: Storages that it allocates.
        seconds: How long it takes.
        scratch: Bytes that it allocates inside and frees before it returns.
        replayable: Whether running it a second time gives the same values, and does nothing else.
    """

    name: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    seconds: float
    scratch: int = 0
    replayable: bool = True


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What to keep after the forward, and what to run in the backward.

    Args:
        saved: Storages kept for the backward, the forward's own outputs left out.
        backward: In order, ``k`` for another run of forward operation ``k`` and ``~t`` for backward operation
            ``t``, each of which occurs once.
    """

    saved: frozenset[int]
    backward: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Memory of a schedule, position by position. All in bytes.

    Args:
        forward: Allocated at most at each operation of the forward.
        backward: Allocated at most at each entry of ``schedule.backward``.
        between: Live between the two.
    """

    forward: npt.NDArray[np.int64]
    backward: npt.NDArray[np.int64]
    between: int

    @property
    def peak(self) -> int:
        """The most that is allocated at any moment."""
        return max(int(self.forward.max(initial=0)), int(self.backward.max(initial=0)), self.between)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A training step of which it is to be planned what the backward recomputes.

    Args:
        forward: Operations of the forward, in order.
        backward: Operations of the backward, in an order that respects their dependencies.
        sizes: Bytes of each storage.
        outputs: Storages that the forward returns to its caller, held during the whole backward.
        gradients: Storages that the backward returns.
        tangent_bytes: Held during the whole backward.
        never_saved: Storages that the user wants to be recomputed.
    """

    forward: tuple[Operation, ...]
    backward: tuple[Operation, ...]
    sizes: tuple[int, ...]
    outputs: frozenset[int]
    gradients: frozenset[int]
    tangent_bytes: int
    never_saved: frozenset[int] = frozenset()

    @functools.cached_property
    def maker(self) -> dict[int, int]:
        """Map each storage of the forward to the operation that makes it."""
        return {storage: k for k, operation in enumerate(self.forward) for storage in operation.makes}

    @functools.cached_property
    def readers(self) -> dict[int, list[int]]:
        """Map each storage of the forward to the operations of the forward that read it, in order."""
        readers: dict[int, list[int]] = {storage: [] for storage in self.maker}
        for k, operation in enumerate(self.forward):
            for storage in operation.reads:
                readers[storage].append(k)
        return readers

    @functools.cached_property
    def last_read(self) -> dict[int, int]:
        """Map each storage of the forward to the last operation of the forward that makes or reads it."""
        return {storage: max([k, *self.readers[storage]]) for storage, k in self.maker.items()}

    @functools.cached_property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        """Per operation of the backward the storages of the forward that it reads, outputs left out."""
        return tuple(
            tuple(s for s in operation.reads if s in self.maker and s not in self.outputs)
            for operation in self.backward
        )

    @functools.cached_property
    def output_bytes(self) -> int:
        """Bytes of the forward's own outputs."""
        return sum(self.sizes[storage] for storage in self.outputs)

    @functools.cached_property
    def seconds(self) -> float:
        """How long the step takes without recomputation."""
        return sum(operation.seconds for operation in (*self.forward, *self.backward))

    @functools.cached_property
    def backward_own(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Bytes of what the backward itself makes, per operation of it: before it, and while it runs.

        The second contains its outputs and its scratch.
        """
        last: dict[int, int] = {}
        for t, operation in enumerate(self.backward):
            for storage in (*operation.makes, *operation.reads):
                if storage not in self.maker:
                    last[storage] = t
        dying: dict[int, list[int]] = {}
        for storage, t in last.items():
            if storage not in self.gradients:
                dying.setdefault(t, []).append(storage)
        live, before, during = 0, [], []
        for t, operation in enumerate(self.backward):
            before.append(live)
            live += sum(self.sizes[storage] for storage in operation.makes)
            during.append(live + operation.scratch)
            live -= sum(self.sizes[storage] for storage in dying.get(t, ()))
        return tuple(before), tuple(during)

    def unplanned(self) -> Schedule:
        """Return the schedule that saves all that the backward reads."""
        saved = frozenset(storage for needs in self.needs for storage in needs)
        return Schedule(saved, tuple(~t for t in range(len(self.backward))))

    def recompute_seconds(self, schedule: Schedule) -> float:
        """Return how long the recomputations of a schedule take."""
        return sum(self.forward[entry].seconds for entry in schedule.backward if entry >= 0)

    def prune(self, schedule: Schedule) -> Schedule:
        """Leave out recomputations that nobody reads and values that are saved but not used as saved."""
        needed: set[int] = set()
        kept: list[int] = []
        for entry in reversed(schedule.backward):
            if entry >= 0:
                operation = self.forward[entry]
                if needed.isdisjoint(operation.makes):
                    continue
                needed.difference_update(operation.makes)
            else:
                operation = self.backward[~entry]
            needed.update(s for s in operation.reads if s in self.maker and s not in self.outputs)
            kept.append(entry)
        return Schedule(frozenset(needed & schedule.saved), tuple(reversed(kept)))

    def timeline(self, schedule: Schedule) -> Timeline:
        """Return the memory of a schedule.

        Raises:
            ValueError: an operation reads what is neither saved nor made before; the schedule is wrong.
        """
        return Timeline(
            self.forward_memory(schedule.saved),
            self._backward_memory(schedule),
            sum(self.sizes[s] for s in schedule.saved) + self.output_bytes + self.tangent_bytes,
        )

    def forward_memory(self, saved: frozenset[int]) -> npt.NDArray[np.int64]:
        """Return what is allocated at most at each operation of the forward, in bytes."""
        dying = self._dying_in_forward
        live, memory = 0, []
        for k, operation in enumerate(self.forward):
            live += sum(self.sizes[storage] for storage in operation.makes)
            memory.append(live + operation.scratch)
            for storage in dying[k]:
                if storage not in saved:
                    live -= self.sizes[storage]
        return np.array(memory, dtype=np.int64)

    @functools.cached_property
    def _dying_in_forward(self) -> list[list[int]]:
        dying: list[list[int]] = [[] for _ in self.forward]
        for storage, k in self.last_read.items():
            if storage not in self.outputs:
                dying[k].append(storage)
        return dying

    def _backward_memory(self, schedule: Schedule) -> npt.NDArray[np.int64]:
        sizes, maker, outputs = self.sizes, self.maker, self.outputs
        before, during = self.backward_own
        order = schedule.backward
        # Storages that die after an entry: those of which no later entry reads this making.
        dying: list[list[int]] = [[] for _ in order]
        wanted: set[int] = set()
        for position in range(len(order) - 1, -1, -1):
            entry = order[position]
            if entry >= 0:
                made: Sequence[int] = self.forward[entry].makes
                reads: Sequence[int] = self.forward[entry].reads
                for storage in made:
                    if storage in wanted:
                        wanted.discard(storage)
                    else:
                        # Nobody reads it; of an output everybody reads what the forward made.
                        dying[position].append(storage)
            else:
                reads = self.backward[~entry].reads
            for storage in reads:
                if storage in maker and storage not in outputs and storage not in wanted:
                    wanted.add(storage)
                    dying[position].append(storage)
        if not wanted <= schedule.saved:
            missing = sorted(wanted - schedule.saved)
            raise ValueError(f"the schedule reads storages {missing} that it neither saves nor makes")
        constant = self.tangent_bytes + self.output_bytes
        live = sum(sizes[s] for s in schedule.saved)
        # What is saved and not used stays to the end.
        resident = set(schedule.saved)
        memory = []
        own = 0
        for position, entry in enumerate(order):
            if entry >= 0:
                operation = self.forward[entry]
                extra = 0
                for storage in operation.makes:
                    if storage not in resident:
                        resident.add(storage)
                        live += sizes[storage]
                    else:
                        # Made anew while the old making is still read: both are there.
                        extra += sizes[storage]
                memory.append(constant + own + live + extra + operation.scratch)
            else:
                memory.append(constant + live + during[~entry])
                following = ~entry + 1
                own = before[following] if following < len(before) else 0
            for storage in dying[position]:
                if storage in resident:
                    resident.discard(storage)
                    live -= sizes[storage]
        return np.array(memory, dtype=np.int64)
