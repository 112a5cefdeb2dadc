"""What else a schedule could save: sets of storages that differ in a few values, or in what a few operations make."""

from __future__ import annotations

import random

from aot_partition.memory.eviction import Rehearsal

__all__ = ["Neighbours"]


class Neighbours:
    """Draws sets of storages to save, near to one that is known to be good.

    An operation is left out of the backward only if all that it makes is saved. So most steps go by whole operations;
    those that exchange single values alone get stuck where several have to be exchanged at once.

    Args:
        rehearsal: Of the step; knows what its operations read.
        wanted: Storages that the backward reads.
    """

    def __init__(self, rehearsal: Rehearsal, wanted: frozenset[int]) -> None:
        self.problem = rehearsal.problem
        self.wanted = wanted
        self.reads = [frozenset(storages) for storages in rehearsal.reads]
        self.makes = [frozenset(operation.makes) for operation in self.problem.forward]

    def draw(self, saved: frozenset[int], other: frozenset[int], rng: random.Random) -> frozenset[int]:
        """Return a set near to ``saved``, or one that combines it with another good one."""
        step = rng.random()
        if step < 0.2:
            return self._with_other_values(saved, rng)
        if step < 0.4:
            return self._with_sources(saved, rng)
        if step < 0.9 or saved == other:
            return self._with_other_operations(saved, rng)
        return self._crossed(saved, other, rng)

    def _with_other_values(self, saved: frozenset[int], rng: random.Random) -> frozenset[int]:
        """Exchange a few of what the backward reads."""
        sizes = self.problem.sizes
        inside = sorted(s for s in saved if sizes[s])
        outside = sorted(s for s in self.wanted - saved if sizes[s])
        dropped = rng.sample(inside, min(len(inside), rng.choice((0, 1, 1, 2, 3))))
        added = rng.sample(outside, min(len(outside), rng.choice((0, 1, 1, 2))))
        return saved.difference(dropped).union(added)

    def _with_sources(self, saved: frozenset[int], rng: random.Random) -> frozenset[int]:
        """Save what some operations read instead of what they make, as for concatenations; or the reverse."""
        for _ in range(rng.choice((1, 1, 2, 3))):
            k = rng.randrange(len(self.makes))
            made, read = self.makes[k] & self.wanted, self.reads[k]
            saved = (saved - made) | read if made & saved else (saved | made) - (read - self.wanted)
        return saved

    def _with_other_operations(self, saved: frozenset[int], rng: random.Random) -> frozenset[int]:
        """Save nothing of what some operations make, and all of what some others do."""
        for _ in range(rng.choice((0, 1, 1, 2))):
            saved = saved - self._made_by_successive(rng)
        for _ in range(rng.choice((0, 1, 1, 2))):
            saved = saved | (self._made_by_successive(rng) & self.wanted)
        return saved

    def _made_by_successive(self, rng: random.Random) -> frozenset[int]:
        """Return what a few successive operations of the forward make; now and then, of many."""
        count = len(self.makes)
        length = rng.choice((1, 2, 2, 3, 4, 6, rng.randint(1, count)))
        start = rng.randrange(max(1, count - length + 1))
        return frozenset().union(*self.makes[start : start + length])

    def _crossed(self, one: frozenset[int], other: frozenset[int], rng: random.Random) -> frozenset[int]:
        """Save as one schedule does in a part of the forward, and as another one does in the rest."""
        maker, count = self.problem.maker, len(self.makes)
        start, stop = sorted((rng.randrange(count + 1), rng.randrange(count + 1)))
        return frozenset(
            [s for s in other if start <= maker[s] < stop] + [s for s in one if not start <= maker[s] < stop]
        )
