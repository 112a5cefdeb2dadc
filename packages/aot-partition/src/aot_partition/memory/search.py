"""Search for the schedule with the least recomputation among those that fit a budget.

A portfolio: schedules that others made (cuts of a min-cut, segments, a smaller problem's), rehearsals under many
preferences, some under a smaller budget than is given, all of them with their spare room spent by `retain`.
Then the best ones are varied: the same values of all layers that are alike are saved, or what `Neighbours` draws, and
the rest is rehearsed anew.

The search counts evaluations and not seconds, and draws from a seeded generator: the same problem gives the
same schedule on every machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator

from aot_partition.memory.eviction import Preference, Rehearsal
from aot_partition.memory.neighbours import Neighbours
from aot_partition.memory.problem import Problem, Schedule
from aot_partition.memory.repetition import roles
from aot_partition.memory.retention import retain

__all__ = ["Found", "Search", "default_evaluations"]

FIRST_PREFERENCES = (
    Preference(),
    Preference(distance=0.2, noise=0.3),
    Preference(cost=0.5, noise=0.3),
    Preference(cost=0.3, size=1.5, noise=0.3),
)
"""What is tried first: each was the best of many on some graph."""

SMALLER_BUDGETS = (1.0, 1.0, 0.97, 0.93, 0.85, 0.75)
"""Parts of the budget under which is rehearsed. Room that is left over is spent by `retain`."""


FEW_VALUES = 9
"""Of how many values each choice of what to save is tried, if a search has evaluations for an eighth of them."""

ROLE_ROUNDS = 2
"""How often all roles are gone through, as long as that helps."""


LEAST_PATIENCE = 64
"""How many variations at least are tried after the last one that was better; a third of all if that is more."""

ELITE = 8
"""How many of the best schedules are varied."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A schedule within a budget.

    Args:
        schedule: The schedule.
        seconds: How long its recomputations take.
        peak: Bytes.
        origin: Which member of the portfolio made it.
    """

    schedule: Schedule
    seconds: float
    peak: int
    origin: str


class Search:
    """Searches schedules of one problem, for one budget after the other.

    Args:
        problem: The step.
        seeds: Schedules to start from, each with the name of who made it. Those that don't fit a budget show
            what is worth saving.
        evaluations: How many schedules to try per budget. By default so many that it takes a few seconds.
        seed: Of the random generator.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        seeds: Iterable[tuple[str, Schedule]] = (),
        evaluations: int | None = None,
        seed: int = 0,
    ) -> None:
        self.problem = problem
        self.rehearsal = Rehearsal(problem)
        self.evaluations = default_evaluations(problem) if evaluations is None else evaluations
        self.seed = seed
        unplanned = problem.unplanned()
        self.unplanned = Found(unplanned, 0.0, problem.timeline(unplanned).peak, "unplanned")
        # What the backward does not read, and may be worth saving since something else is remade from it.
        self._others = [
            s for s in problem.maker if problem.sizes[s] and s not in problem.outputs | unplanned.saved
        ]
        self._roles = roles(problem)
        self._rehearsals = max(len(FIRST_PREFERENCES), self.evaluations // 4)
        self._neighbours = Neighbours(self.rehearsal, unplanned.saved)
        self._seeds = [(origin, schedule.saved) for origin, schedule in seeds]
        self._known: list[Found] = []

    def best(self, budget: int, *, also: Iterable[tuple[str, frozenset[int]]] = ()) -> Found | None:
        """Return the cheapest schedule found whose peak is at most ``budget`` bytes, or None.

        Args:
            budget: Bytes.
            also: More sets of storages to save to start from, each with the name of who made it.
        """
        if self.unplanned.peak <= budget and not self.problem.never_saved:
            return self.unplanned
        rng = random.Random(self.seed)
        around = (found for origin, saved in also for found in self._around(saved, budget, rng, origin))
        elite: list[Found] = []
        for candidate in itertools.chain(around, self._candidates(budget, rng)):
            if candidate.peak <= budget:
                elite = _kept([*elite, candidate])
        if not elite:
            elite = _kept(found for found in self._desperate(budget, rng) if found.peak <= budget)
        if not elite:
            return None
        elite = _kept([self._varied_by_role(elite[0], budget, rng), *elite])
        best = self._varied(elite, budget, rng)
        # What one budget showed is good may be good for the next, smaller one.
        self._known.append(best)
        return best

    def _candidates(self, budget: int, rng: random.Random) -> Iterator[Found]:
        for found in self._known:
            if found.peak <= budget:
                yield self._retained(found.schedule, budget, found.origin)
            else:
                yield from self._around(found.schedule.saved, budget, rng, found.origin)
        for origin, saved in self._seeds:
            yield from self._around(saved, budget, rng, origin)
        # So small a step leaves nothing to chance.
        few = sorted({*self.unplanned.schedule.saved, *self._others})
        if len(few) > FEW_VALUES:
            few = sorted(self.unplanned.schedule.saved)
        if len(few) <= FEW_VALUES and 2 ** len(few) <= 8 * self.evaluations:
            for chosen in itertools.product((True, False), repeat=len(few)):
                saved = frozenset(itertools.compress(few, chosen))
                yield from self._around(saved, budget, rng, "exhaustive")
        for number in range(self._rehearsals):
            if number < len(FIRST_PREFERENCES):
                preference, part = FIRST_PREFERENCES[number], 1.0
            else:
                preference, part = _random_preference(rng), rng.choice(SMALLER_BUDGETS)
            schedule = self.rehearsal.run(int(budget * part), preference, rng)
            if schedule is not None:
                yield self._retained(schedule, budget, "rehearsal")

    def _desperate(self, budget: int, rng: random.Random) -> Iterator[Found]:
        """Save any part of what there is: what looked good alone may not fit together."""
        wanted = sorted(self.unplanned.schedule.saved)
        everything = sorted({*wanted, *self._others})
        for number in range(self.evaluations):
            some = wanted if number % 2 else everything
            saved = frozenset(rng.sample(some, rng.randrange(len(some) + 1)))
            preference = _random_preference(rng)
            schedule = self.rehearsal.run(budget, preference, rng, keep=saved)
            if schedule is not None:
                yield self._retained(schedule, budget, "random")

    def _around(self, saved: frozenset[int], budget: int, rng: random.Random, origin: str) -> Iterator[Found]:
        schedule = self.rehearsal.run(budget, FIRST_PREFERENCES[0], rng, keep=saved)
        if schedule is not None:
            yield self._retained(schedule, budget, origin)

    def any(self, budget: int) -> Found | None:
        """Return some schedule whose peak is at most ``budget`` bytes, or None if none is found quickly."""
        if self.unplanned.peak <= budget and not self.problem.never_saved:
            return self.unplanned
        rng = random.Random(self.seed)
        candidates = self._candidates(budget, rng)
        for candidate in itertools.islice(candidates, len(self._known) + len(self._seeds) + 24):
            if candidate.peak <= budget:
                return candidate
        return None

    def _varied_by_role(self, best: Found, budget: int, rng: random.Random) -> Found:
        """Save what plays one role in all layers that are alike, or in none of them, and plan the rest around it."""
        tried: set[frozenset[int]] = set()
        for _ in range(ROLE_ROUNDS):
            before = best
            for group in self._roles:
                members = frozenset[int]().union(*group)
                for keep in (best.schedule.saved - members, best.schedule.saved | members):
                    if keep in tried or keep == best.schedule.saved or len(tried) >= self.evaluations:
                        continue
                    tried.add(keep)
                    schedule = self.rehearsal.run(budget, FIRST_PREFERENCES[0], rng, keep=keep)
                    if schedule is None:
                        continue
                    # What gave room is not to take it again at once.
                    schedule = retain(self.problem, schedule, budget, last=members - keep)
                    found = self._measured(schedule, best.origin)
                    if found.peak <= budget and _key(found) < _key(best):
                        best = found
            if best is before:
                break
        return best

    def _varied(self, elite: list[Found], budget: int, rng: random.Random) -> Found:
        """Save something else than one of the best schedules does, and plan the rest around it."""
        last = 0
        for number in range(self.evaluations - self._rehearsals):
            if number - last > max(LEAST_PATIENCE, self.evaluations // 3):
                break
            base = elite[0] if rng.random() < 0.3 else rng.choice(elite)
            keep = self._neighbours.draw(base.schedule.saved, rng.choice(elite).schedule.saved, rng)
            preference = FIRST_PREFERENCES[0] if rng.random() < 0.5 else _random_preference(rng)
            part = 1.0 if rng.random() < 0.5 else rng.choice(SMALLER_BUDGETS)
            schedule = self.rehearsal.run(int(budget * part), preference, rng, keep=keep)
            if schedule is None:
                continue
            found = self._retained(schedule, budget, base.origin, rng if rng.random() < 0.5 else None)
            if found.peak <= budget:
                if _key(found) < _key(elite[0]):
                    last = number
                elite = _kept([*elite, found])
        return elite[0]

    def _retained(
        self, schedule: Schedule, budget: int, origin: str, rng: random.Random | None = None
    ) -> Found:
        return self._measured(retain(self.problem, schedule, budget, rng), origin)

    def _measured(self, schedule: Schedule, origin: str) -> Found:
        return Found(
            schedule,
            self.problem.recompute_seconds(schedule),
            self.problem.timeline(schedule).peak,
            origin,
        )


def default_evaluations(problem: Problem) -> int:
    """Return how many schedules of a problem can be tried in a few seconds."""
    operations = len(problem.forward) + len(problem.backward)
    return max(32, min(1600, 6_000_000 // operations**2))


def _random_preference(rng: random.Random) -> Preference:
    return Preference(
        cost=rng.choice((0.3, 0.5, 1.0, 1.0, 1.5)),
        size=rng.choice((0.3, 0.5, 1.0, 1.0, 1.5)),
        distance=rng.choice((0.0, 0.2, 0.5, 1.0, 1.0, 2.0)),
        noise=rng.choice((0.0, 0.3, 1.0, 3.0)),
        sources=rng.random() < 0.4,
        early=rng.random() < 0.4,
    )


def _kept(elite: Iterable[Found]) -> list[Found]:
    """Return the best of some schedules, best first, and of those that save the same only one."""
    distinct: dict[frozenset[int], Found] = {}
    for found in sorted(elite, key=_key):
        distinct.setdefault(found.schedule.saved, found)
    return list(distinct.values())[:ELITE]


def _key(found: Found) -> tuple[float, int]:
    return found.seconds, found.peak
