"""What the memory planner reaches, against torch's activation budget and against proven optima.

    python benchmarks/peak_memory.py [--rows ROW ...] [--models NAME ...] [--small]

    time      how long planning takes
    optimum   recomputation against an integer program on small graphs, where it proves the optimum
    real      the simulated step against the allocator, node by node and as a whole
    floor     the smallest reachable peak over the largest working set of one operation
    torch     at torch's own peaks, over ten budgets: our recomputation against torch's; and our peak at its cost

Each figure comes with its bar, and with "met" or "not met". What is known is printed graph by graph, and the table at
the end; a run that is interrupted prints the table of what it has.

Each graph is captured once, and one set of measured costs serves both sides of a comparison. Costs are those of the
roofline of this machine; sizes and peaks don't depend on it. Times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from corpus.capture import Case, capture
from corpus.models import MODELS
from rows import Row, print_rows

from aot_partition import (
    BudgetTooSmallError,
    JointGraph,
    MemoryPlanner,
    PartitionPlan,
    TorchPoint,
    torch_points,
)
from aot_partition.extract import extract
from aot_partition.memory.floor import largest_working_set
from aot_partition.memory.kernels import made_up
from aot_partition.memory.liveness import simulate_step
from aot_partition.memory.measure import measure_step

ROOT = Path(__file__).parent.parent
BATCH = dict.fromkeys(MODELS, 32) | {"resnet": 8, "densenet": 8, "lstm": 64, "scan": 64}
DEPTH = dict.fromkeys(MODELS, 4) | {"llama": 3, "resnet": 8, "densenet": 12, "lstm": 16, "scan": 24}
OPTIMUM = (
    ("resnet", 1, 8), ("resnet", 2, 8), ("resnet", 4, 8), ("densenet", 2, 8), ("densenet", 4, 8), ("densenet", 6, 8),
    ("scan", 4, 64), ("scan", 8, 64), ("lstm", 2, 64), ("bert", 1, 32), ("vit", 1, 32), ("transformer", 1, 32),
    ("llama", 1, 32), ("t5", 2, 32),
)  # fmt: skip
OPTIMUM_PARTS = (0.95, 0.9, 0.85, 0.8, 0.7)
"""Budgets whose optimum is asked for, as parts of the peak without a plan."""
CONVOLUTIONAL = ("resnet", "densenet")
TRANSFORMERS = ("transformer", "llama", "t5", "bert", "vit")
ROWS = ("time", "optimum", "real", "floor", "torch")
EQUAL = 1 + 1e-9
"""Sums of the same seconds in another order differ by less."""


@dataclasses.dataclass
class Results:
    """What was measured so far."""

    kept: list[bool] = dataclasses.field(default_factory=list)
    planning: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    gaps: list[float] = dataclasses.field(default_factory=list)
    differing_nodes: int = 0
    differences: list[float] = dataclasses.field(default_factory=list)
    floors: list[float] = dataclasses.field(default_factory=list)
    points: int = 0
    above: list[str] = dataclasses.field(default_factory=list)
    ratios: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    scarce_ratios: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Of torch's budgets up to 0.5."""

    def plan(self, planner: MemoryPlanner, budget: float) -> PartitionPlan | None:
        """Plan, and note whether the budget is kept. None where no plan is found."""
        if budget > 1:
            budget = min(int(budget), planner.unplanned.peak)
        try:
            plan = planner.plan(budget)
        except BudgetTooSmallError:
            return None
        self.kept.append(plan.peak <= plan.budget)
        return plan

    def rows(self) -> Iterator[Row]:
        """Yield the rows of what was measured."""
        for what, limit in (("250 forward operations", 10), ("48 layers", 60)):
            if seconds := self.planning.get(what):
                worst = max(seconds)
                yield Row(f"planning time, {what}", f"at most {worst:.1f} s", f"{limit} s", worst <= limit)
        if self.gaps:
            mean, worst, count = statistics.fmean(self.gaps), max(self.gaps), len(self.gaps)
            yield Row(
                "recomputation over the proven optimum",
                f"{count} points: mean {100 * mean:.2f} %, worst {100 * worst:.2f} %",
                "at least 20 points: mean 2 %, worst 8 %",
                count >= 20 and mean <= 0.02 and worst <= 0.08,
            )
        if self.differences:
            worst = max(self.differences)
            yield Row(
                "simulated against real peak",
                f"{len(self.differences)} steps: worst {100 * worst:.2f} %",
                "3 %",
                worst <= 0.03,
            )
            yield Row(
                "nodes after which simulated and real bytes differ",
                str(self.differing_nodes),
                "0",
                not self.differing_nodes,
            )
        if self.floors:
            yield Row(
                "smallest reachable peak over the largest working set of one operation",
                f"{min(self.floors):.2f} to {max(self.floors):.2f}, geometric mean "
                f"{statistics.geometric_mean(self.floors):.2f}",
            )
        if self.points:
            yield Row(
                "recomputation above torch's at torch's own peak",
                f"{len(self.above)} of {self.points} points" + "".join(f"; {each}" for each in self.above),
                "none",
                not self.above,
            )
        for kind, limit in (("convolutional", 0.75), ("transformer", 0.9)):
            if ratios := self.scarce_ratios.get(kind):
                mean = statistics.geometric_mean(ratios)
                yield Row(
                    f"step peak over torch's at torch's recomputation, torch's budgets up to 0.5, {kind}",
                    f"geometric mean {mean:.3f}",
                    f"{limit}",
                    mean <= limit,
                )
        if self.ratios:
            worst = max(itertools.chain.from_iterable(self.ratios.values()))
            yield Row("the same, any budget and model", f"worst {worst:.3f}", "1", worst <= 1)
        if self.kept:
            yield Row(
                "budget kept",
                f"{sum(self.kept)} of {len(self.kept)} plans",
                "all",
                all(self.kept),
            )


def cases(models: Iterable[str], *, small: bool) -> list[Case]:
    found = []
    for model in models:
        depth = DEPTH[model] // (2 if small else 1)
        found.append(Case(model, max(1, depth), batch=BATCH[model]))
        found.append(Case(model, max(1, depth // 2), decomposed=True, batch=BATCH[model]))
        if not small:
            found.append(Case(model, max(1, depth // 2), dynamic=True, batch=BATCH[model]))
    return found


def planner_of(case: Case, **options: Any) -> MemoryPlanner:
    joint = capture(case)
    return MemoryPlanner(JointGraph(joint.module, **joint.options), **options)


# --- rows over the corpus ------------------------------------------------------------------------------------


def against_allocator(case: Case, planner: MemoryPlanner, results: Results) -> None:
    graph = planner.joint
    for part in (1.0, 0.7):
        plan = results.plan(planner, part)
        if plan is None:
            continue
        forward, backward = extract(graph, plan.assignment)
        inputs = [made_up(node.meta["val"]) for node in forward.graph.find_nodes(op="placeholder")]
        measured = measure_step(forward, backward, inputs, graph.num_fwd_outputs)
        simulated = simulate_step(forward, backward, graph.num_fwd_outputs, scratch=planner.scratch)
        differing = sum(
            (one.live, one.during) != (other.live, other.during)
            for one, other in zip(
                (*simulated.forward, *simulated.backward),
                (*measured.forward, *measured.backward),
                strict=True,
            )
        )
        ratio = measured.peak / simulated.peak
        results.differing_nodes += differing
        results.differences.append(abs(ratio - 1))
        print(f"{case!s:<26} real   budget {part}: {differing} nodes differ, peak {ratio:.4f}", flush=True)


def floor(case: Case, planner: MemoryPlanner, results: Results) -> None:
    plan = planner.smallest()
    ratio = plan.peak / largest_working_set(planner.problem)
    results.floors.append(ratio)
    print(
        f"{case!s:<26} floor  {ratio:.2f}; {100 * plan.peak / planner.unplanned.peak:.0f} % of the peak without a "
        f"plan, recomputation {100 * plan.overhead:.0f} %",
        flush=True,
    )


def against_torch(case: Case, planner: MemoryPlanner, results: Results) -> None:
    """Compare at torch's own peaks: recomputation in % of the step, peaks in % of the peak without a plan."""
    total = planner.problem.seconds
    theirs = list(torch_points(planner.joint, seconds=planner.seconds, scratch=planner.scratch))
    plans = planner.pareto(10)
    at_peak: dict[int, PartitionPlan | None] = {}
    for limit in sorted({point.memory.peak for point in theirs}, reverse=True):
        plan = at_peak[limit] = results.plan(planner, limit)
        plans += [plan] if plan else []
    said = []
    for point in theirs:
        limit = point.memory.peak
        plan = at_peak[limit]
        results.points += 1
        worse = plan is None or plan.recompute_seconds > point.recompute_seconds * EQUAL
        if worse:
            results.above.append(f"{case} at {point.budget:g}")
        scarce = point.budget <= 0.5
        ratio = peak_at_cost(planner, plans, point, results, steps=3 if scarce else 0) / limit
        results.ratios.setdefault(kind_of(case), []).append(ratio)
        if scarce:
            results.scarce_ratios.setdefault(kind_of(case), []).append(ratio)
        ours = f"{100 * plan.recompute_seconds / total:.1f}" if plan else "none"
        said.append(
            f"{point.budget:g}: {100 * limit / planner.unplanned.peak:.0f}% "
            f"{ours}/{100 * point.recompute_seconds / total:.1f}{'!' if worse else ''} {ratio:.2f}"
        )
    print(f"{case!s:<26} torch  budget: peak ours/torch peak-ratio | {' | '.join(said)}", flush=True)


def kind_of(case: Case) -> str:
    if case.model in CONVOLUTIONAL:
        return "convolutional"
    return "transformer" if case.model in TRANSFORMERS else "other"


def peak_at_cost(
    planner: MemoryPlanner, plans: list[PartitionPlan], point: TorchPoint, results: Results, *, steps: int
) -> int:
    """Return the smallest peak found whose recomputation takes no longer than torch's; adds plans to ``plans``."""

    def affordable(plan: PartitionPlan) -> bool:
        return plan.recompute_seconds <= point.recompute_seconds * EQUAL

    def smallest() -> int:
        return min([planner.unplanned.peak, *(plan.peak for plan in plans if affordable(plan))])

    for _ in range(steps):
        high = smallest()
        low = max([plan.peak for plan in plans if not affordable(plan) and plan.peak < high], default=0)
        if high - low < high // 50:
            break
        plan = results.plan(planner, (low + high) // 2)
        if plan is None:
            break
        plans.append(plan)
    return smallest()


# --- rows of their own ---------------------------------------------------------------------------------------


def against_optimum(seconds: float, small: bool, results: Results) -> None:
    sys.path.insert(0, str(ROOT / "packages" / "aot-partition" / "tests"))
    from ilp_oracle import solve_exactly

    for model, depth, batch in OPTIMUM[::3] if small else OPTIMUM:
        planner = planner_of(Case(model, depth, batch=batch))
        problem, search = planner.problem, planner.search()
        peak = search.unplanned.peak
        if len(problem.forward) > 75:
            continue
        for part in OPTIMUM_PARTS:
            budget = int(peak * part)
            found = search.best(budget)
            optimum = solve_exactly(problem, budget, time_limit=seconds, known=found and found.schedule)
            name = f"{f'{model}-{depth}':<26} optimum at {part:g}:"
            if optimum.infeasible or not optimum.proven or not optimum.seconds or found is None:
                print(name, "no plan exists" if optimum.infeasible else "not proven", flush=True)
                continue
            # A plan that is not lazy may be better than the optimum of those that are; it counts as equal.
            gap = found.seconds / optimum.seconds - 1
            results.gaps.append(max(0.0, gap))
            print(
                f"{name} {100 * found.seconds / problem.seconds:.2f} %, optimum "
                f"{100 * optimum.seconds / problem.seconds:.2f} % of the step, gap {100 * gap:.2f} %",
                flush=True,
            )


def planning_time(small: bool, results: Results) -> None:
    for what, case in (
        ("250 forward operations", Case("transformer", 6 if small else 15, batch=16)),
        ("250 forward operations", Case("resnet", 8 if small else 28, batch=8)),
        ("48 layers", Case("transformer", 12 if small else 48, batch=16)),
    ):
        joint = capture(case)
        for part in (0.8, 0.6):
            started = time.process_time()
            planner = MemoryPlanner(JointGraph(joint.module, **joint.options))
            plan = results.plan(planner, part)
            seconds = time.process_time() - started
            results.planning.setdefault(what, []).append(seconds)
            found = f"recomputation {100 * plan.overhead:.1f} %" if plan else "no plan found"
            print(
                f"{case!s:<26} time   {len(planner.problem.forward)} forward operations, budget {part}: "
                f"{seconds:.1f} s, {found}",
                flush=True,
            )


def measure(arguments: argparse.Namespace, results: Results) -> None:
    if "time" in arguments.rows:
        planning_time(arguments.small, results)
    if "optimum" in arguments.rows:
        against_optimum(arguments.prove, arguments.small, results)
    of_corpus = {"real": against_allocator, "floor": floor, "torch": against_torch}
    asked = [row for name, row in of_corpus.items() if name in arguments.rows]
    for case in cases(arguments.models, small=arguments.small) if asked else ():
        planner = planner_of(case, evaluations=arguments.evaluations)
        for row in asked:
            row(case, planner, results)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=ROWS, choices=ROWS)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--small", action="store_true", help="half the depths")
    parser.add_argument("--prove", type=float, default=30.0, help="seconds that the integer program may take")
    parser.add_argument(
        "--evaluations", type=int, help="schedules to try per budget, over the corpus; as planning does"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results()
    try:
        measure(arguments, results)
    except KeyboardInterrupt:
        print("interrupted")
    print_rows(results.rows())


if __name__ == "__main__":
    main()
