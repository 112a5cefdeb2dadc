"""Plan by rehearsal: run the step in the head under a budget, evict where it is too small, recompute on demand.

This is dynamic tensor rematerialisation (Kirisame et al., ICLR 2021) done ahead of time, where the next use
of every value is known. Whenever a value finds no room, the resident value goes whose

    (seconds to get it back) ** cost / (bytes ** size · (operations until it is used) ** distance)

is smallest. What is resident when the forward ends is what it saves.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import math
import random
from collections.abc import Iterable, Iterator

from aot_partition.memory.problem import Problem, Schedule

__all__ = ["Preference", "Rehearsal"]


LOOKAHEAD = 3
"""How many operations of the backward ahead an early rehearsal looks for what will have no room."""


@dataclasses.dataclass(frozen=True)
class Preference:
    """How values are ranked for eviction.

    Args:
        cost: Exponent of the seconds that it takes to get a value back.
        size: Exponent of its bytes.
        distance: Exponent of the number of operations until its next use.
        noise: How much chance comes in: ranks are multiplied by up to ``1 + noise``.
        sources: Whether a value that only others are remade from counts as used when the first of them is, or
            goes before all that is read itself.
        early: Whether a value that others are remade from gives way to them as soon as it is not read itself
            any more and they are smaller.
    """

    cost: float = 1.0
    size: float = 1.0
    distance: float = 1.0
    noise: float = 0.0
    sources: bool = False
    early: bool = False


class Rehearsal:
    """Plans schedules of one problem, over and over, each time under other preferences.

    Args:
        problem: The step to plan.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = len(problem.forward)
        self.reads = [
            tuple(s for s in operation.reads if s in problem.maker and s not in problem.outputs)
            for operation in problem.forward
        ]
        self.made_bytes = [sum(problem.sizes[s] for s in operation.makes) for operation in problem.forward]
        self.uses = self._find_uses()
        self.wanted_until = self._find_last_wanted()
        self.expiring: list[list[int]] = [[] for _ in range(self.count + len(problem.backward))]
        self.settling: list[list[int]] = [[] for _ in range(self.count)]
        for storage in problem.maker:
            if storage not in problem.outputs:
                self.expiring[self.wanted_until[storage]].append(storage)
                self.settling[problem.last_read[storage]].append(storage)

    def _find_uses(self) -> dict[int, list[int]]:
        """Map each storage to the times at which it is read: operations of the forward, then the backward's."""
        problem = self.problem
        uses = {storage: list(readers) for storage, readers in problem.readers.items()}
        for t, needs in enumerate(problem.needs):
            for storage in needs:
                uses[storage].append(self.count + t)
        return uses

    def _find_last_wanted(self) -> dict[int, int]:
        """Map each storage to the last time at which it, or what can be remade from it, is read."""
        problem = self.problem
        last = {s: max([problem.maker[s], *times]) for s, times in self.uses.items()}
        for k in reversed(range(self.count)):
            operation = problem.forward[k]
            if operation.replayable:
                latest = max((last[s] for s in operation.makes if s not in problem.outputs), default=-1)
                for storage in self.reads[k]:
                    last[storage] = max(last[storage], latest)
        return last

    def run(
        self,
        budget: int,
        preference: Preference,
        rng: random.Random,
        *,
        keep: frozenset[int] | None = None,
        limit: float = math.inf,
    ) -> Schedule | None:
        """Rehearse the step once.

        Args:
            budget: Bytes that are never to be exceeded.
            preference: How to rank.
            rng: Where the noise comes from.
            keep: What to save at most; by default whatever has room.
            limit: Give up when recomputation takes longer, in seconds.

        Returns:
            A schedule within the budget, or None if this rehearsal found none.
        """
        return _Run(self, budget, preference, rng, keep, limit).schedule()


class _Run:
    def __init__(
        self,
        tables: Rehearsal,
        budget: int,
        preference: Preference,
        rng: random.Random,
        keep: frozenset[int] | None,
        limit: float,
    ) -> None:
        self.tables = tables
        self.problem = tables.problem
        self.budget = budget
        self.preference = preference
        self.keep = keep
        self.limit = limit
        self.resident: set[int] = set()
        self.bytes = 0
        self.locks = [0] * len(self.problem.sizes)
        self.weight = self._weights(preference, rng)
        self.remake_seconds: dict[int, float] = {}
        self.now = 0
        # The last operation of the forward that has run.
        self.made_until = -1
        self.spent = 0.0
        self.backward: list[int] = []

    def _weights(self, preference: Preference, rng: random.Random) -> dict[int, float]:
        sizes, power, noise = self.problem.sizes, preference.size, preference.noise
        if noise:
            return {s: (1 + noise * rng.random()) / max(1, sizes[s]) ** power for s in self.problem.maker}
        return {s: 1 / max(1, sizes[s]) ** power for s in self.problem.maker}

    def schedule(self) -> Schedule | None:
        saved = self._forward()
        if saved is None or not self._backward():
            return None
        return self.problem.prune(Schedule(saved, tuple(self.backward)))

    # --- the step --------------------------------------------------------------------------------------

    def _forward(self) -> frozenset[int] | None:
        problem, tables, locks = self.problem, self.tables, self.locks
        for k, operation in enumerate(problem.forward):
            self.now = k - 1
            if not self._make_room(tables.made_bytes[k] + operation.scratch):
                return None
            self.made_until = k
            for storage in operation.makes:
                # The forward runs once: what it still reads can't go.
                locks[storage] = 1
                self._add(storage)
            for storage in tables.settling[k]:
                locks[storage] = 0
                if self._is_refused(storage) and (
                    problem.forward[problem.maker[storage]].replayable
                    or (self._next_use(storage) == math.inf and not self._is_needed_to_remake(storage))
                ):
                    self._drop(storage)
            self.now = k
            for storage in tables.expiring[k]:
                if storage in self.resident:
                    self._drop(storage)
        self.now = tables.count - 1
        if not self._make_room(problem.tangent_bytes):
            return None
        return frozenset(self.resident) - problem.outputs

    def _backward(self) -> bool:
        problem, tables, locks = self.problem, self.tables, self.locks
        before, during = problem.backward_own
        early = self.preference.early
        if early:
            for storage in sorted(self.resident):
                self._replace_by_what_it_makes(storage, problem.tangent_bytes)
        for t in range(len(problem.backward)):
            self.now = tables.count + t - 1
            if early:
                self._remake_while_there_is_room(t)
            needs = problem.needs[t]
            for storage in needs:
                locks[storage] += 1
            around = problem.tangent_bytes + before[t]
            if not self._make_room(around):
                return False
            missing = [storage for storage in needs if storage not in self.resident]
            if missing and not self._remake(missing, around):
                return False
            if not self._make_room(problem.tangent_bytes + during[t]):
                return False
            for storage in needs:
                locks[storage] -= 1
            self.backward.append(~t)
            for storage in tables.expiring[tables.count + t]:
                if storage in self.resident:
                    self._drop(storage)
            if early and t + 1 < len(problem.backward):
                self.now = tables.count + t
                for storage in needs:
                    self._replace_by_what_it_makes(storage, problem.tangent_bytes + before[t + 1])
        return True

    def _remake_while_there_is_room(self, t: int) -> None:
        """Remake before operation ``t`` what a later one reads, if there is room now and will be none then."""
        problem, tables, sizes = self.problem, self.tables, self.problem.sizes
        before, during = problem.backward_own
        for later in range(t + 1, min(t + 1 + LOOKAHEAD, len(problem.backward))):
            missing = [s for s in problem.needs[later] if s not in self.resident]
            operations = self._leading_to(missing)
            if not operations:
                continue
            most = sum(tables.made_bytes[k] for k in operations) + max(
                problem.forward[k].scratch for k in operations
            )
            held = self.bytes + problem.tangent_bytes
            if held + before[later] + most <= self.budget or held + before[t] + most > self.budget:
                continue
            added = sum(sizes[s] for s in missing)
            if held + added + max(during[t:later]) > self.budget:
                continue
            for k in operations:
                self.spent += problem.forward[k].seconds
                self.backward.append(k)
            for storage in missing:
                self._add(storage)

    def _replace_by_what_it_makes(self, source: int, around: int) -> None:
        """Remake now what would be remade from a storage later, if it is smaller than what it is remade from."""
        problem, tables, resident, sizes = self.problem, self.tables, self.resident, self.problem.sizes
        if source not in resident or source in problem.outputs or self._next_use(source) < math.inf:
            return
        wanted: set[int] = set()
        pending = [source]
        seen = {source}
        while pending:
            for k in problem.readers[pending.pop()]:
                if not problem.forward[k].replayable:
                    continue
                for made in problem.forward[k].makes:
                    if made in seen or made in problem.outputs or tables.wanted_until[made] <= self.now:
                        continue
                    seen.add(made)
                    if made not in resident:
                        pending.append(made)
                        if self._next_use(made) < math.inf:
                            wanted.add(made)
        operations = self._leading_to(wanted)
        if not operations:
            return
        read = {s for k in operations for s in tables.reads[k] if s in resident}
        kept = {s for s in read if self._next_use(s) < math.inf}
        for storage in wanted:
            resident.add(storage)
        freed = [s for s in read - kept if not self._is_needed_to_remake(s)]
        for storage in wanted:
            resident.remove(storage)
        if sum(sizes[s] for s in freed) <= sum(sizes[s] for s in wanted):
            return
        most = sum(tables.made_bytes[k] for k in operations) + max(
            problem.forward[k].scratch for k in operations
        )
        if self.bytes + around + most > self.budget:
            return
        for k in operations:
            self.spent += problem.forward[k].seconds
            self.backward.append(k)
        for storage in wanted:
            self._add(storage)
        for storage in freed:
            self._drop(storage)

    def _remake(self, missing: list[int], around: int) -> bool:
        """Run again, in the forward's order, what leads to some storages that are not resident."""
        problem, tables, locks, resident = self.problem, self.tables, self.locks, self.resident
        order = self._leading_to(missing)
        if order is None:
            return False
        for k in order:
            for storage in tables.reads[k]:
                locks[storage] += 1
        for k in order:
            operation = problem.forward[k]
            for storage in operation.makes:
                if storage in resident and storage not in problem.outputs:
                    # It is made anew: whoever reads it from here on comes after this operation.
                    self._drop(storage)
            if not self._make_room(around + tables.made_bytes[k] + operation.scratch):
                return False
            for storage in operation.makes:
                if storage not in problem.outputs:
                    self._add(storage)
            for storage in tables.reads[k]:
                locks[storage] -= 1
            self.spent += operation.seconds
            self.backward.append(k)
        return self.spent < self.limit

    def _leading_to(self, missing: Iterable[int]) -> list[int] | None:
        """Return the operations that make some storages of what is resident, or None if that is impossible."""
        problem, reads, maker = self.problem, self.tables.reads, self.problem.maker
        found: set[int] = set()
        pending = [maker[storage] for storage in missing]
        while pending:
            k = pending.pop()
            if k not in found:
                if not problem.forward[k].replayable:
                    return None
                found.add(k)
                pending.extend(maker[s] for s in reads[k] if s not in self.resident)
        return sorted(found)

    # --- residency -------------------------------------------------------------------------------------

    def _add(self, storage: int) -> None:
        if storage not in self.resident:
            self.resident.add(storage)
            self.bytes += self.problem.sizes[storage]
            self._forget_seconds_below(storage)

    def _drop(self, storage: int) -> None:
        self.resident.discard(storage)
        self.bytes -= self.problem.sizes[storage]
        self._forget_seconds_below(storage)

    def _forget_seconds_below(self, storage: int) -> None:
        """What it takes to remake a value changes when one that it is remade from comes or goes."""
        problem, known, resident = self.problem, self.remake_seconds, self.resident
        wanted_until, now, last = self.tables.wanted_until, self.now, self.made_until
        pending = [storage]
        seen = {storage}
        while pending:
            for k in problem.readers[pending.pop()]:
                if k > last:
                    # Readers are in order, and from here on the forward has not run yet.
                    break
                for made in problem.forward[k].makes:
                    if made not in seen and wanted_until[made] > now:
                        seen.add(made)
                        known.pop(made, None)
                        if made not in resident:
                            pending.append(made)

    def _seconds_to_remake(self, storage: int) -> float:
        known = self.remake_seconds.get(storage)
        if known is not None:
            return known
        problem, reads, resident = self.problem, self.tables.reads, self.resident
        found: set[int] = set()
        pending = [problem.maker[storage]]
        seconds = 0.0
        while pending:
            k = pending.pop()
            if k in found:
                continue
            found.add(k)
            operation = problem.forward[k]
            if not operation.replayable:
                seconds = math.inf
                break
            seconds += operation.seconds
            for read in reads[k]:
                if read not in resident:
                    pending.append(problem.maker[read])
        self.remake_seconds[storage] = seconds
        return seconds

    def _rank(self, storage: int) -> float:
        """Return how much it would hurt to evict a storage; infinite if it can't be."""
        seconds = self._seconds_to_remake(storage)
        distance = self._next_use(storage) - self.now
        if distance == math.inf:
            # Only others are remade from it, and those that are there need not be.
            if not self._is_needed_to_remake(storage):
                return 0.0
            if not self.preference.sources:
                return 1e-6 * seconds * self.weight[storage]
            distance = self._first_use_of_remade(storage) - self.now
        if seconds == math.inf:
            return seconds
        if self._comes_back_anyway(storage):
            return 0.0
        preference = self.preference
        return float(seconds**preference.cost * self.weight[storage] / distance**preference.distance)

    def _comes_back_anyway(self, storage: int) -> bool:
        """Tell whether what makes a storage runs again for another result of it before the storage is read."""
        makes = self.problem.forward[self.problem.maker[storage]].makes
        if len(makes) == 1:
            return False
        following = self._next_use(storage)
        return any(
            other not in self.resident
            and other not in self.problem.outputs
            and self._next_use(other) <= following
            for other in makes
        )

    def _is_refused(self, storage: int) -> bool:
        """Tell whether a storage is not to be saved, if that can be helped."""
        return storage in self.problem.never_saved or (self.keep is not None and storage not in self.keep)

    def _is_needed_to_remake(self, storage: int) -> bool:
        """Tell whether something that is read later, and not there or not to stay, is remade from a storage."""
        return any(self._next_use(made) < math.inf for made in self._remade_from(storage))

    def _first_use_of_remade(self, storage: int) -> float:
        """Return when the first of what is remade from a storage is read."""
        return min(map(self._next_use, self._remade_from(storage)), default=math.inf)

    def _remade_from(self, storage: int) -> Iterator[int]:
        """Yield what is not there or not to stay, and would be remade from a storage, directly or not."""
        problem, resident, wanted_until = self.problem, self.resident, self.tables.wanted_until
        in_forward = self.now < self.tables.count - 1
        pending = [storage]
        seen = {storage}
        while pending:
            for k in problem.readers[pending.pop()]:
                if k > self.made_until or not problem.forward[k].replayable:
                    continue
                for made in problem.forward[k].makes:
                    if made in seen or made in problem.outputs or wanted_until[made] <= self.now:
                        continue
                    seen.add(made)
                    if made in resident and not (in_forward and self._is_refused(made)):
                        continue
                    yield made
                    pending.append(made)

    def _make_room(self, needed: int) -> bool:
        excess = self.bytes + needed - self.budget
        if excess <= 0:
            return True
        locks, sizes, outputs = self.locks, self.problem.sizes, self.problem.outputs
        ranks = [
            (rank, storage)
            for storage in self.resident
            if not locks[storage]
            and storage not in outputs
            and sizes[storage]
            and (rank := self._rank(storage)) < math.inf
        ]
        heapq.heapify(ranks)
        while excess > 0:
            if not ranks:
                return False
            _, storage = ranks[0]
            if storage not in self.resident:
                heapq.heappop(ranks)
                continue
            # Evictions since then can only have made it harder to get back.
            rank = self._rank(storage)
            if len(ranks) > 1 and (rank, storage) > min(ranks[1:3]):
                if rank < math.inf:
                    heapq.heapreplace(ranks, (rank, storage))
                else:
                    heapq.heappop(ranks)
                continue
            heapq.heappop(ranks)
            if rank == math.inf:
                continue
            excess -= self._drop_with_siblings(storage)
        return True

    def _drop_with_siblings(self, storage: int) -> int:
        """Evict a storage, and what will be remade with it before it is read; return the bytes gained."""
        gained = self.problem.sizes[storage]
        self._drop(storage)
        following = self._next_use(storage)
        for sibling in self.problem.forward[self.problem.maker[storage]].makes:
            if (
                sibling in self.resident
                and not self.locks[sibling]
                and sibling not in self.problem.outputs
                and self._next_use(sibling) >= following
            ):
                gained += self.problem.sizes[sibling]
                self._drop(sibling)
        return gained

    def _next_use(self, storage: int) -> float:
        uses = self.tables.uses[storage]
        following = bisect.bisect_right(uses, self.now)
        return uses[following] if following < len(uses) else math.inf
