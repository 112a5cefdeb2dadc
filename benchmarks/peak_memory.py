"""What the memory planner reaches, against torch's activation budget and against proven optima.

    python benchmarks/peak_memory.py [--rows ROW ...] [--small] [--models NAME ...]

    torch     at torch's own peaks, over ten budgets: our recomputation against torch's; and our peak at its cost
    optimum   against a lazily recomputing integer program on small graphs, where it proves the optimum
    floor     the smallest reachable peak over the largest working set of one operation
    time      how long planning takes, and whether each budget is kept
    real      the simulated step against the allocator, node by node and as a whole

Each graph is captured once, and one set of measured costs serves both sides of a comparison. Costs are those of
the roofline of this machine; sizes and peaks don't depend on it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from corpus.capture import Case, capture
from corpus.models import MODELS

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
ROWS = ("torch", "optimum", "floor", "time", "real")


def cases(models: Iterable[str], *, small: bool) -> list[Case]:
    found = []
    for model in models:
        depth = DEPTH[model] // (2 if small else 1)
        found.append(Case(model, max(1, depth), batch=BATCH[model]))
        found.append(Case(model, max(1, depth // 2), decomposed=True, batch=BATCH[model]))
        if not small:
            found.append(Case(model, max(1, depth // 2), dynamic=True, batch=BATCH[model]))
    return found


def planner_of(case: Case, **options: object) -> MemoryPlanner:
    joint = capture(case)
    return MemoryPlanner(JointGraph(joint.module, **joint.options), **options)  # type: ignore[arg-type]


def against_torch(models: list[str], small: bool, evaluations: int) -> None:
    print("\n== at torch's own peaks (recomputation in % of the step; peak in % of the peak without a plan)")
    ratios: dict[str, list[float]] = {"convolutional": [], "transformer": [], "other": []}
    above = points = 0
    for case in cases(models, small=small):
        planner = planner_of(case, evaluations=evaluations)
        joint, total = planner.joint, planner.problem.seconds
        theirs = list(torch_points(joint, seconds=planner.seconds, scratch=planner.scratch))
        plans = planner.pareto(12)
        at_peak: dict[int, float] = {}
        for limit in sorted({point.memory.peak for point in theirs}, reverse=True):
            plan = planned(planner, limit)
            at_peak[limit] = plan.recompute_seconds if plan else math.inf
            plans += [plan] if plan else []
        row = []
        for point in theirs:
            limit = point.memory.peak
            ours = at_peak[limit]
            points += 1
            worse = ours > point.recompute_seconds * (1 + 1e-9)
            above += worse
            peak = peak_at_cost(planner, plans, point)
            if point.budget <= 0.5:
                ratios[kind_of(case)].append(peak / limit)
            row.append(
                f"{point.budget:g}: {100 * limit / planner.unplanned.peak:.0f}%"
                f" {100 * ours / total:.1f}/{100 * point.recompute_seconds / total:.1f}{'!' if worse else ''}"
                f" {peak / limit:.2f}"
            )
        print(f"{case!s:<24} budget: peak ours/torch peak-ratio | " + " | ".join(row), flush=True)
    print(f"our recomputation above torch's at torch's peak: {above} of {points} points")
    for kind, found in ratios.items():
        if found:
            mean = math.exp(statistics.fmean(map(math.log, found)))
            print(
                f"our peak over torch's at torch's recomputation, budgets up to 0.5, {kind}: "
                f"geometric mean {mean:.3f}, worst {max(found):.3f}"
            )


def kind_of(case: Case) -> str:
    if case.model in CONVOLUTIONAL:
        return "convolutional"
    return "transformer" if case.model in TRANSFORMERS else "other"


def planned(planner: MemoryPlanner, limit: int) -> PartitionPlan | None:
    try:
        return planner.plan(min(max(2, limit), planner.unplanned.peak))
    except BudgetTooSmallError:
        return None


def peak_at_cost(planner: MemoryPlanner, plans: list[PartitionPlan], point: TorchPoint) -> int:
    """Return the smallest peak found whose recomputation takes no longer than torch's; adds plans to ``plans``."""

    def affordable(plan: PartitionPlan) -> bool:
        return plan.recompute_seconds <= point.recompute_seconds * (1 + 1e-9)

    for _ in range(3):
        high = min([plan.peak for plan in plans if affordable(plan)], default=point.memory.peak)
        low = max([plan.peak for plan in plans if not affordable(plan) and plan.peak < high], default=0)
        if high - low < high // 50:
            break
        plan = planned(planner, (low + high) // 2)
        if plan is None:
            break
        plans.append(plan)
    return min([point.memory.peak, *(plan.peak for plan in plans if affordable(plan))])


def against_optimum(seconds: float, small: bool) -> None:
    sys.path.insert(0, str(ROOT / "packages" / "aot-partition" / "tests"))
    from ilp_oracle import solve_exactly

    print("\n== against the optimum of the integer program (recomputation in % of the step)")
    gaps: list[float] = []
    impossible = unproven = 0
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
            if optimum.infeasible or not optimum.proven or not optimum.seconds or found is None:
                impossible += optimum.infeasible
                unproven += not optimum.infeasible
                what = "no plan exists" if optimum.infeasible else "not proven"
                print(f"{model}-{depth} at {part:g}: {what}", flush=True)
                continue
            # A plan that is not lazy may be better than the optimum of those that are; it counts as equal.
            gap = found.seconds / optimum.seconds - 1
            gaps.append(max(0.0, gap))
            print(
                f"{model}-{depth} at {part:g}: {100 * found.seconds / problem.seconds:.2f}, optimum "
                f"{100 * optimum.seconds / problem.seconds:.2f}, gap {100 * gap:.2f} %",
                flush=True,
            )
    print(
        f"{len(gaps)} proven points: mean {100 * statistics.fmean(gaps):.2f} %, worst {100 * max(gaps):.2f} %; "
        f"{impossible} where no plan exists, {unproven} not proven"
    )


def floors(models: list[str], small: bool) -> None:
    print("\n== smallest reachable peak over the largest working set of one operation")
    for case in cases(models, small=small):
        planner = planner_of(case)
        plan = planner.smallest()
        working = largest_working_set(planner.problem)
        print(
            f"{case!s:<24} {plan.peak / working:>6.2f}   {100 * plan.peak / planner.unplanned.peak:.0f} % of the "
            f"peak without a plan, recomputation {100 * plan.overhead:.0f} %",
            flush=True,
        )


def planning_time(small: bool) -> None:
    print("\n== planning time")
    kept = tried = 0
    for case in (
        Case("transformer", 6 if small else 15, batch=16),
        Case("transformer", 12 if small else 48, batch=16),
        Case("resnet", 8 if small else 28, batch=8),
    ):
        joint = capture(case)
        for part in (0.8, 0.6):
            started = time.perf_counter()
            graph = JointGraph(joint.module, **joint.options)
            planner = MemoryPlanner(graph)
            try:
                plan = planner.plan(part)
            except BudgetTooSmallError as error:
                print(f"{case!s:<24} {part}: {error}")
                continue
            seconds = time.perf_counter() - started
            tried += 1
            kept += plan.peak <= plan.budget
            print(
                f"{case!s:<24} {len(planner.problem.forward)} forward operations, budget {part}: {seconds:.1f} s, "
                f"recomputation {100 * plan.overhead:.1f} %, peak / budget {plan.peak / plan.budget:.3f}",
                flush=True,
            )
    print(f"budget kept: {kept} of {tried}")


def against_allocator(models: list[str], small: bool) -> None:
    print("\n== simulated against real: nodes whose live bytes differ, and real over simulated peak")
    worst = 0.0
    for case in cases(models, small=small):
        joint = capture(case)
        graph = JointGraph(joint.module, **joint.options)
        planner = MemoryPlanner(graph)
        for part in (1.0, 0.7):
            try:
                plan = planner.plan(part)
            except BudgetTooSmallError:
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
            worst = max(worst, abs(ratio - 1))
            print(f"{case!s:<24} budget {part}: {differing} nodes differ, peak {ratio:.4f}", flush=True)
    print(f"worst difference of a peak: {100 * worst:.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=ROWS, choices=ROWS)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--small", action="store_true", help="half the depths")
    parser.add_argument("--prove", type=float, default=30.0, help="seconds that the integer program may take")
    parser.add_argument("--evaluations", type=int, default=120, help="schedules to try per budget, row torch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "torch" in arguments.rows:
        against_torch(arguments.models, arguments.small, arguments.evaluations)
    if "optimum" in arguments.rows:
        against_optimum(arguments.prove, arguments.small)
    if "floor" in arguments.rows:
        floors(arguments.models, arguments.small)
    if "time" in arguments.rows:
        planning_time(arguments.small)
    if "real" in arguments.rows:
        against_allocator(arguments.models, arguments.small)


if __name__ == "__main__":
    main()
