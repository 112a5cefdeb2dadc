"""Schedules that a search starts from: segments, as people checkpoint by hand, and thresholds of density.

Segments cut the forward where little is live, save what crosses the cuts, and recompute the rest segment by
segment (Chen et al., 2016)::

    forward   ──────┃──────┃──────
    saved           x      y       and all of the last segment

A threshold saves what takes long to compute for its size: products and convolutions before normalisations
before additions.
"""

from __future__ import annotations

from collections.abc import Iterator

from aot_partition.memory.problem import Problem, Schedule

__all__ = ["seed_schedules"]

SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24)
THRESHOLDS = (0.2, 0.4, 0.6, 0.8, 0.95)


def seed_schedules(problem: Problem) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules, each with the name of its kind. Few of them fit a given budget; what they save counts."""
    for count in SEGMENTS:
        if count * 4 <= len(problem.forward):
            yield "segments", Schedule(_crossing(problem, count), problem.unplanned().backward)
    for threshold in THRESHOLDS:
        yield "threshold", Schedule(_dense(problem, threshold), problem.unplanned().backward)


def _crossing(problem: Problem, count: int) -> frozenset[int]:
    """Return what crosses the cuts between segments of about equal size, and what the last segment makes."""
    live = problem.forward_memory(frozenset())
    wanted = problem.unplanned().saved
    produced = [
        sum(problem.sizes[s] for s in operation.makes if s in wanted) for operation in problem.forward
    ]
    total = sum(produced)
    cuts: list[int] = []
    reached, following = 0, 1
    window: list[int] = []
    for k, size in enumerate(produced):
        reached += size
        window.append(k)
        if reached >= total * (following + 0.3) / count and following < count:
            cuts.append(min(window[len(window) // 2 :], key=lambda k: int(live[k])))
            window = []
            following += 1
    last = cuts[-1] if cuts else -1
    return frozenset(
        s
        for s, k in problem.maker.items()
        if s not in problem.outputs
        and (any(k <= cut < problem.last_read[s] for cut in cuts) or (k > last and s in wanted))
    )


def _dense(problem: Problem, threshold: float) -> frozenset[int]:
    """Return the densest of what the backward reads: seconds to compute it by bytes."""

    def density(s: int) -> float:
        operation = problem.forward[problem.maker[s]]
        return operation.seconds / max(1, sum(problem.sizes[made] for made in operation.makes))

    wanted = sorted(problem.unplanned().saved, key=density)
    return frozenset(wanted[int(len(wanted) * threshold) :])
