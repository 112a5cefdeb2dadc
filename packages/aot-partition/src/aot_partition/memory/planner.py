"""Plan the memory of one training step within a budget, at the least recomputation.

::

    JointGraph ── read ──> Problem ── search, per backward order ──> Schedule ── unfold, extract ──> two graphs
                                          ▲                                                            │
                                          └───────── a tighter budget, if they exceed it ── simulate ──┘

What counts in the end is the simulation of the two graphs that will run, not the planner's own arithmetic.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from aot_core.source import source_line
from aot_partition.budget import Budget, format_bytes, resolve_budget
from aot_partition.errors import BudgetTooSmallError
from aot_partition.extract import extract
from aot_partition.joint_graph import JointGraph
from aot_partition.memory.agreement import agree
from aot_partition.memory.cost import CostModel, cost_function
from aot_partition.memory.floor import least_conceivable_peak
from aot_partition.memory.kernels import KernelProfile
from aot_partition.memory.liveness import StepMemory, simulate_step
from aot_partition.memory.orders import backward_orders
from aot_partition.memory.problem import Problem, Schedule
from aot_partition.memory.reading import ReadProblem, read_problem
from aot_partition.memory.search import Found, Search, default_evaluations
from aot_partition.memory.seeds import cut_schedules, seed_schedules
from aot_partition.memory.unfolding import unfold
from aot_partition.plan import REASONS, PartitionPlan, PlannedValue

__all__ = ["MemoryPlanner", "pareto", "plan_for_budget"]

CORRECTIONS = 6
"""How often a budget is tightened by what the graphs exceed it, before a plan counts as not found."""


def plan_for_budget(
    joint: JointGraph,
    budget: Budget,
    *,
    cost_model: CostModel = "eager",
    evaluations: int | None = None,
    seed: int = 0,
) -> PartitionPlan:
    """Plan a training step within a memory budget.

    Args:
        joint: The joint graph.
        budget: What the peak of the step may be, without what is static: a fraction of the peak without a
            plan, bytes, or text such as ``"6GiB"``.
        cost_model: What recomputation costs; see `aot_partition.memory.cost_function`.
        evaluations: How many schedules to try; by default as many as a few seconds allow.
        seed: Of the search. The same graph, costs and seed give the same plan.

    Returns:
        The cheapest plan found whose simulated peak is within the budget.

    Raises:
        InvalidBudgetError: the budget can't be read.
        BudgetTooLargeError: more bytes than the step takes without a plan.
        BudgetTooSmallError: no plan within the budget was found, or none can exist; says which, and names the
            smallest peak that was reached.
    """
    planner = MemoryPlanner(joint, cost_model=cost_model, evaluations=evaluations, seed=seed)
    return planner.plan(budget)


def pareto(
    joint: JointGraph,
    *,
    points: int = 12,
    cost_model: CostModel = "eager",
    evaluations: int | None = None,
    seed: int = 0,
) -> list[PartitionPlan]:
    """Return plans from no recomputation down to the smallest peak, none of which another one beats.

    Args:
        joint: The joint graph.
        points: How many budgets to plan for.
        cost_model: What recomputation costs; see `aot_partition.memory.cost_function`.
        evaluations: How many schedules to try per budget.
        seed: Of the search.

    Returns:
        Plans by falling peak and rising recomputation.
    """
    planner = MemoryPlanner(joint, cost_model=cost_model, evaluations=evaluations, seed=seed)
    return planner.pareto(points)


@dataclasses.dataclass(frozen=True)
class _Candidate:
    order: int
    found: Found
    graphs: tuple[fx.GraphModule, fx.GraphModule]
    memory: StepMemory


class MemoryPlanner:
    """Plans one training step, for one budget or for many.

    Args:
        joint: The joint graph.
        cost_model: What recomputation costs; see `aot_partition.memory.cost_function`.
        evaluations: How many schedules to try per budget and backward order.
        seed: Of the search.
        profile: Measured kernels to use and to add to.
    """

    def __init__(
        self,
        joint: JointGraph,
        *,
        cost_model: CostModel = "eager",
        evaluations: int | None = None,
        seed: int = 0,
        profile: KernelProfile | None = None,
    ) -> None:
        self.joint = joint
        self.profile = profile or KernelProfile()
        seconds = cost_function(cost_model, joint.module, self.profile)
        self.profile.measure(joint.nodes)
        costs = [(seconds(node), self.profile.scratch(node)) for node in joint.nodes]
        costs = agree(joint, costs)
        self._costs = dict(zip(joint.nodes, costs, strict=True))
        # Copies of a node share its fake value.
        self._scratch_of = {
            id(node.meta["val"]): scratch
            for node, (_, scratch) in self._costs.items()
            if node.meta.get("val") is not None
        }
        self._evaluations, self._seed = evaluations, seed
        self.readings = [
            read_problem(joint, seconds=self.seconds, scratch=self.scratch, order=order)
            for order in backward_orders(joint)
        ]
        self._searches: dict[int, Search] = {}
        self._answers: dict[int, _Candidate] = {}

    def seconds(self, node: fx.Node) -> float:
        """Return how long a node takes, as planning saw it."""
        return self._costs[node][0]

    def scratch(self, node: fx.Node) -> int:
        """Return what the kernel of a node, or of a copy of it, allocates inside, in bytes."""
        scratch = self._scratch_of.get(id(node.meta.get("val")))
        return self.profile.scratch(node) if scratch is None else scratch

    def search(self, order: int = 0) -> Search:
        """Return the search over schedules of a backward order, of which 0 is autograd's own."""
        if order not in self._searches:
            problem = self.readings[order].problem
            tries = default_evaluations(problem) if self._evaluations is None else self._evaluations
            # What is worth saving is found in autograd's order, and only adapted to the others.
            self._searches[order] = Search(
                problem,
                seeds=[*seed_schedules(problem), *self._cuts],
                evaluations=tries if order == 0 else max(1, tries // 2),
                seed=self._seed,
            )
        return self._searches[order]

    @functools.cached_property
    def _cuts(self) -> list[tuple[str, Schedule]]:
        return list(cut_schedules(self.joint, self.problem, self.seconds))

    @property
    def problem(self) -> Problem:
        """The step in autograd's own backward order."""
        return self.readings[0].problem

    @functools.cached_property
    def unplanned(self) -> StepMemory:
        """The step that saves all that the backward reads."""
        return self._simulated(0, self.problem.unplanned())[1]

    def plan(self, budget: Budget) -> PartitionPlan:
        """Return the cheapest plan found within a budget. See `plan_for_budget`.

        Of one planner, a smaller budget never gives a larger peak, in whatever order budgets are asked for: a
        search is no exact solver, so a plan has to lie between those given before for smaller and for larger
        budgets.
        """
        limit = resolve_budget(budget, self.unplanned.peak)
        if limit not in self._answers:
            self._answers[limit] = self._answer(limit)
        return self._describe(self._answers[limit], limit)

    def _answer(self, limit: int) -> _Candidate:
        larger = [found for other, found in self._answers.items() if other > limit]
        smaller = [found for other, found in self._answers.items() if other < limit]
        above = min(larger, key=lambda found: found.memory.peak, default=None)
        below = max(smaller, key=lambda found: found.memory.peak, default=None)
        best = above if above is not None and above.memory.peak <= limit else None
        most = limit if above is None else min(limit, above.memory.peak)
        for order in range(len(self.readings)):
            candidate = self._within(order, most, start=best)
            if candidate and (best is None or _cost(candidate) < _cost(best)):
                best = candidate
            if best is not None and best.found.seconds == 0.0:
                break
        if best is None:
            smallest = self._smallest()
            if smallest.memory.peak > limit:
                raise BudgetTooSmallError(self._explain_too_small(limit, smallest))
            best = smallest
        if below is not None and best.memory.peak < below.memory.peak:
            return below
        return best

    def smallest(self) -> PartitionPlan:
        """Return the plan with the smallest peak found, however long it takes."""
        candidate = self._smallest()
        return self._describe(candidate, candidate.memory.peak)

    def pareto(self, points: int = 12) -> list[PartitionPlan]:
        """Return plans from no recomputation down to the smallest peak, none of which another one beats.

        Args:
            points: How many budgets to plan for.

        Returns:
            Plans by falling peak and rising recomputation.
        """
        most, least = self.unplanned.peak, self._smallest().memory.peak
        plans: list[PartitionPlan] = []
        for number in range(points):
            limit = most - (most - least) * number // max(1, points - 1)
            try:
                plans.append(self.plan(max(2, limit)))
            except BudgetTooSmallError:
                continue
        front: list[PartitionPlan] = []
        for plan in sorted(plans, key=lambda plan: (plan.peak, plan.recompute_seconds)):
            if not front or plan.recompute_seconds < front[-1].recompute_seconds:
                front.append(plan)
        return front[::-1]

    # --- one budget, one order -------------------------------------------------------------------------

    def _within(
        self, order: int, limit: int, *, quick: bool = False, start: _Candidate | None = None
    ) -> _Candidate | None:
        """Return the best schedule of an order whose graphs stay within a limit.

        Args:
            order: Of the backward.
            limit: Bytes.
            quick: Any schedule will do.
            start: The best of another order: what it saves is a good start for this one.
        """
        target = limit
        also = () if start is None else (("other-order", start.found.schedule.saved),)
        for _ in range(CORRECTIONS):
            search = self.search(order)
            found = search.any(target) if quick else search.best(target, also=also)
            if found is None:
                return None
            graphs, memory = self._simulated(order, found.schedule)
            if memory.peak <= limit:
                return _Candidate(order, found, graphs, memory)
            # Less than what it was planned to take: else the same schedule would be found again.
            target = min(target, found.peak) - (memory.peak - limit)
        return None

    def _simulated(
        self, order: int, schedule: Schedule
    ) -> tuple[tuple[fx.GraphModule, fx.GraphModule], StepMemory]:
        graphs = extract(self.joint, unfold(self.joint, self.readings[order], schedule))
        memory = simulate_step(*graphs, self.joint.num_fwd_outputs, scratch=self.scratch)
        return graphs, memory

    def _smallest(self) -> _Candidate:
        """Search the smallest reachable peak, by bisection over budgets."""
        unplanned = self._within(0, self.unplanned.peak, quick=True)
        assert unplanned is not None or self.problem.never_saved
        best = unplanned
        for order in range(len(self.readings)):
            least = least_conceivable_peak(self.readings[order].problem)
            low, high = least - 1, self.unplanned.peak if best is None else best.memory.peak
            if least < high and (candidate := self._within(order, least)):
                best = candidate
                continue
            while high - low > max(1, high // 200):
                middle = (low + high) // 2
                candidate = self._within(order, middle, quick=True)
                if candidate is None:
                    low = middle
                else:
                    best, high = candidate, candidate.memory.peak
        assert best is not None
        return best

    def _explain_too_small(self, limit: int, reached: _Candidate) -> str:
        least = min(least_conceivable_peak(reading.problem) for reading in self.readings)
        verdict = (
            f"No plan can: a single operation and what is held around it take {least} bytes"
            if limit < least
            else "No plan within it was found, though none is proven impossible"
        )
        share = reached.memory.peak / self.unplanned.peak
        return (
            f"The budget of {limit} bytes ({format_bytes(limit)}) is too small for this step, whose peak without "
            f"a plan is {self.unplanned.peak} bytes. {verdict}. The smallest peak that was reached is "
            f"{reached.memory.peak} bytes ({format_bytes(reached.memory.peak)}, budget={share:.3f})."
        )

    # --- a plan for people -----------------------------------------------------------------------------

    def _describe(self, candidate: _Candidate, limit: int) -> PartitionPlan:
        reading = self.readings[candidate.order]
        schedule = candidate.found.schedule
        return PartitionPlan(
            budget=limit,
            memory=candidate.memory,
            unplanned=self.unplanned,
            saved=tuple(self._saved(reading, schedule)),
            recomputed=tuple(self._recomputed(reading, schedule)),
            seconds=reading.problem.seconds,
            recompute_seconds=candidate.found.seconds,
            origin=candidate.found.origin,
            assignment=unfold(self.joint, reading, schedule),
        )

    def _saved(self, reading: ReadProblem, schedule: Schedule) -> list[PlannedValue]:
        problem = reading.problem
        read = {s for needs in problem.needs for s in needs}
        saved: dict[int, list[int]] = {}
        for s in schedule.saved:
            saved.setdefault(problem.maker[s], []).append(s)

        def reason(k: int, storages: Sequence[int]) -> str:
            if self.joint.policy[reading.forward_nodes[k]] is CheckpointPolicy.MUST_SAVE:
                return "must-save"
            if not problem.forward[k].replayable:
                return "cannot-be-recomputed"
            if k in schedule.backward:
                return "saved-then-recomputed"
            return "read-by-backward" if read.intersection(storages) else "recomputed-from"

        values = [
            self._value(reading, k, sum(problem.sizes[s] for s in storages), reason(k, storages))
            for k, storages in saved.items()
        ]
        return sorted(values, key=lambda value: -value.nbytes)

    def _recomputed(self, reading: ReadProblem, schedule: Schedule) -> list[PlannedValue]:
        problem = reading.problem
        read = {s for needs in problem.needs for s in needs}
        times: dict[int, int] = {}
        for entry in schedule.backward:
            if entry >= 0:
                times[entry] = times.get(entry, 0) + 1

        def reason(k: int) -> str:
            if self.joint.policy[reading.forward_nodes[k]] is CheckpointPolicy.MUST_RECOMPUTE:
                return "must-recompute"
            return "leads-to-recomputed" if read.isdisjoint(problem.forward[k].makes) else "no-room"

        values = [
            self._value(
                reading, k, sum(problem.sizes[s] for s in problem.forward[k].makes), reason(k), times=count
            )
            for k, count in times.items()
        ]
        return sorted(values, key=lambda value: -value.seconds * value.times)

    def _value(
        self, reading: ReadProblem, k: int, nbytes: int, reason: str, *, times: int = 0
    ) -> PlannedValue:
        node = self.joint.nodes[reading.forward_nodes[k]]
        return PlannedValue(
            name=node.name,
            operation=str(node.target),
            nbytes=nbytes,
            seconds=reading.problem.forward[k].seconds,
            reason=reason,
            detail=REASONS[reason],
            source=source_line(node),
            times=times,
        )


def _cost(candidate: _Candidate) -> tuple[float, int]:
    return candidate.found.seconds, candidate.memory.peak
