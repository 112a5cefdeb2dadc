"""Spend what room a schedule leaves: keep values between two uses that it would recompute.

::

    bytes │budget ─────────────────────         budget ─────────────────────
          │  x▆▆      ▁▁     x▆▆▆▆▆▆              x▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆
          └──────────────────↑ remade             └────────────────── kept instead

Applies to any schedule, whoever made it.
"""

from __future__ import annotations

import random

import numpy as np

from aot_partition.memory.problem import Problem, Schedule

__all__ = ["retain"]


def retain(
    problem: Problem,
    schedule: Schedule,
    budget: int,
    rng: random.Random | None = None,
    *,
    last: frozenset[int] = frozenset(),
) -> Schedule:
    """Leave out recomputations whose results fit into memory from their last use on.

    Args:
        problem: The step.
        schedule: Any schedule of it, within the budget.
        budget: Bytes that are never to be exceeded.
        rng: If given, the order in which recomputations are looked at is perturbed.
        last: Storages that are retained only where there is room when all others had their turn.

    Returns:
        A schedule that takes as long or less, within the budget.
    """
    while True:
        better = _retain_once(problem, schedule, budget, rng, problem.never_saved | last)
        if better is not None:
            schedule = better
        elif last:
            last = frozenset()
        else:
            return schedule


def _retain_once(
    problem: Problem, schedule: Schedule, budget: int, rng: random.Random | None, refused: frozenset[int]
) -> Schedule | None:
    """Retain what fits; what nobody reads any more is only found, and its room used, in the next round."""
    count = len(problem.forward)
    order = schedule.backward
    timeline = problem.timeline(schedule)
    memory = np.concatenate((timeline.forward, [timeline.between], timeline.backward))
    read, since, earlier = _makings(problem, schedule)
    feeds = _exclusive_feeders(problem, order)

    ranked: list[tuple[float, int]] = []
    for j, entry in enumerate(order):
        if entry < 0:
            continue
        gained = feeds[j]
        held = sum(
            problem.sizes[s] * (count + 1 + j - since[j, s])
            for s in problem.forward[entry].makes
            if (j, s) in read
        )
        rank = gained / max(1, held)
        ranked.append((rank * (1 + rng.random()) if rng is not None else rank, j))
    ranked.sort(reverse=True)

    dropped: set[int] = set()
    saved = set(schedule.saved)
    for _, j in ranked:
        kept = [s for s in problem.forward[order[j]].makes if (j, s) in read]
        if any(s in refused for s in kept):
            continue
        sources = [(earlier[j, s], s) for s in kept if (j, s) in earlier]
        # An earlier making was left out when nobody read this part of it.
        if any(source in dropped and (source, s) not in read for source, s in sources):
            continue
        spans = [(since[j, s] + 1, count + 1 + j, problem.sizes[s]) for s in kept]
        if all(
            int(memory[start:stop].max(initial=0)) + _overlap(spans, start, stop) <= budget
            for start, stop, _ in spans
        ):
            for start, stop, size in spans:
                memory[start:stop] += size
            dropped.add(j)
            read.update(sources)
            for s in kept:
                if since[j, s] < count:
                    saved.add(s)
    if not dropped:
        return None
    kept_order = tuple(entry for j, entry in enumerate(order) if j not in dropped)
    return problem.prune(Schedule(frozenset(saved), kept_order))


def _overlap(spans: list[tuple[int, int, int]], start: int, stop: int) -> int:
    """Return the bytes of all spans that meet a span; an upper bound of what they add anywhere in it."""
    return sum(size for first, last, size in spans if first < stop and start < last)


def _makings(
    problem: Problem, schedule: Schedule
) -> tuple[set[tuple[int, int]], dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Find how the values that entries make are read.

    Returns:
        Pairs of an entry and a storage that it makes and that somebody reads; per entry and storage the
        position at which the making before it was read last, or made; and the entry of that making, where it
        was no operation of the forward itself. Position 0 is the first operation of the forward.
    """
    count = len(problem.forward)
    # What is saved is there until the backward begins, at least.
    last = {s: count if s in schedule.saved else k for s, k in problem.last_read.items()}
    read: set[tuple[int, int]] = set()
    since: dict[tuple[int, int], int] = {}
    earlier: dict[tuple[int, int], int] = {}
    made_at: dict[int, int] = {}
    for j, entry in enumerate(schedule.backward):
        position = count + 1 + j
        operation = problem.forward[entry] if entry >= 0 else problem.backward[~entry]
        for s in operation.reads:
            if s in problem.maker and s not in problem.outputs:
                last[s] = position
                if s in made_at:
                    read.add((made_at[s], s))
        if entry >= 0:
            for s in operation.makes:
                if s not in problem.outputs:
                    since[j, s] = last[s]
                    if s in made_at:
                        earlier[j, s] = made_at[s]
                    last[s] = position
                    made_at[s] = j
    return read, since, earlier


def _exclusive_feeders(problem: Problem, order: tuple[int, ...]) -> list[float]:
    """Return per entry the seconds of it and of the recomputations that are there for it alone."""
    made_at: dict[int, int] = {}
    readers: dict[int, int] = {}
    sources: list[list[int]] = []
    for j, entry in enumerate(order):
        operation = problem.forward[entry] if entry >= 0 else problem.backward[~entry]
        sources.append(list(dict.fromkeys(made_at[s] for s in operation.reads if s in made_at)))
        for source in sources[-1]:
            readers[source] = readers.get(source, 0) + 1
        if entry >= 0:
            for s in operation.makes:
                made_at[s] = j
    seconds = [0.0] * len(order)
    for j, entry in enumerate(order):
        if entry >= 0:
            seconds[j] = problem.forward[entry].seconds + sum(
                seconds[source] for source in sources[j] if readers[source] == 1
            )
    return seconds
