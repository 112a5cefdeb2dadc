"""Schedules that a search starts from: segments, as people checkpoint by hand, thresholds of density, cuts.

Segments cut the forward where little is live, save what crosses the cuts, and recompute the rest segment by
segment (Chen et al., 2016)::

    forward   ──────┃──────┃──────
    saved           x      y       and all of the last segment

A threshold saves what takes long to compute for its size: products and convolutions before normalisations
before additions.

A cut saves what a minimum cut saves, at a rate at which bytes are exchanged for seconds. Bytes at the end of the
forward are not the peak of a step, but what is worth saving at some rate is mostly worth saving at some budget. So it
is with what torch's activation budgets save: now and then that is best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from torch import fx

from aot_partition.joint_graph import JointGraph
from aot_partition.memory.problem import Problem, Schedule
from aot_partition.mincut.activation_budget import ActivationBudgets
from aot_partition.mincut.eager_rules import saved_for_eager

__all__ = ["cut_schedules", "seed_schedules"]

SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24)
THRESHOLDS = (0.2, 0.4, 0.6, 0.8, 0.95)
EXCHANGE_RATES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0, 10.0)
"""Bytes for a second, over the mean of the forward: the bytes that it keeps, by the seconds that it takes."""

ACTIVATION_BUDGETS = (0.9, 0.7, 0.5, 0.3)
"""Values of torch's ``activation_memory_budget``."""


def seed_schedules(problem: Problem) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules, each with the name of its kind. Few of them fit a given budget; what they save counts."""
    for count in SEGMENTS:
        if count * 4 <= len(problem.forward):
            yield "segments", Schedule(_crossing(problem, count), problem.unplanned().backward)
    for threshold in THRESHOLDS:
        yield "threshold", Schedule(_dense(problem, threshold), problem.unplanned().backward)


def cut_schedules(
    joint: JointGraph, problem: Problem, seconds: Callable[[fx.Node], float]
) -> Iterator[tuple[str, Schedule]]:
    """Yield what minimum cuts save, from bytes being dear to seconds being dear, and what torch saves.

    Raises:
        ContradictoryTagsError, UnboundedCutError: the tags contradict each other or the graph.
    """
    unplanned = problem.unplanned()
    kept = sum(problem.sizes[s] for s in unplanned.saved)
    spent = sum(operation.seconds for operation in problem.forward)
    if not kept or not spent:
        return
    cuts = (
        ("min-cut", saved_for_eager(joint, seconds=seconds, bytes_per_second=rate * kept / spent))
        for rate in EXCHANGE_RATES
    )
    as_torch = ActivationBudgets(joint)
    budgets = (("torch-budget", as_torch.saved(budget)) for budget in ACTIVATION_BUDGETS)
    known: set[frozenset[int]] = set()
    for origin, positions in itertools.chain(cuts, budgets):
        saved = frozenset(_planned(joint, problem, positions))
        if saved not in known:
            known.add(saved)
            yield origin, Schedule(saved, unplanned.backward)


def _planned(joint: JointGraph, problem: Problem, positions: Iterable[int]) -> Iterator[int]:
    """Yield the storages of some nodes that are for the planner to save or not."""
    for i in positions:
        yield from (s for s in joint.storages[i] if s in problem.maker and s not in problem.outputs)


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
