"""Plans of real graphs: the two graphs stay within the budget and compute what the joint graph computes."""

from __future__ import annotations

import contextlib
import itertools
import json
import random

import pytest
import torch
from memory_cases import Convolutional, Step, Transformer, Views, capture
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy

from aot_partition.errors import BudgetTooLargeError, BudgetTooSmallError, InvalidBudgetError
from aot_partition.extract import extract
from aot_partition.memory.comparison import torch_points
from aot_partition.memory.floor import least_conceivable_peak
from aot_partition.memory.liveness import simulate_step
from aot_partition.memory.measure import measure_step
from aot_partition.memory.planner import MemoryPlanner, pareto, plan_for_budget

CASES = {
    "transformer": lambda: (Transformer(3), torch.randn(8, 16, 32)),
    "dropout": lambda: (Transformer(2, dropout=0.2), torch.randn(8, 16, 32)),
    "convolutional": lambda: (Convolutional(), torch.randn(4, 3, 16, 16)),
    "views": lambda: (Views(), torch.randn(16, 16)),
}


def launch_cost(node: torch.fx.Node) -> float:
    """Costs that are the same on every machine."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    size = sum(x.numel() for x in values if isinstance(x, torch.Tensor))
    return 1e-6 + 1e-9 * size * (
        10 if any(word in str(node.target) for word in ("mm", "conv", "attention")) else 1
    )


def planner_of(step: Step, **options) -> MemoryPlanner:
    return MemoryPlanner(step.read(), cost_model=launch_cost, **{"evaluations": 24, **options})


def run_step(forward, backward, step: Step) -> list[torch.Tensor]:
    """Return outputs and gradients, random numbers drawn from one state."""
    torch.manual_seed(5)
    returned = forward(*step.inputs)
    names = [value.name for value in forward.graph.output_node().args[0] if value is not None]
    known = dict(zip(names, [x for x in returned if x is not None], strict=True))
    known |= {
        node.name: value
        for node, value in zip(forward.graph.find_nodes(op="placeholder"), step.inputs, strict=True)
    }
    handed = []
    for node in backward.graph.find_nodes(op="placeholder"):
        if node.name.startswith("rng_state"):
            handed.append(known[node.name])
        else:
            handed.append(
                known[node.name] if node.name in known else torch.full(tuple(node.meta["val"].shape), 0.5)
            )
    return [*returned[: step.num_fwd_outputs], *backward(*handed)]


@pytest.mark.parametrize("name", CASES)
def test_plans_keep_the_budget_and_the_result(name):
    step = capture(*CASES[name]())
    planner = planner_of(step)
    least = planner.smallest().peak
    reference = None
    peaks = []
    for budget in (1.0, 0.8, 0.6, least):
        try:
            plan = planner.plan(budget)
        except BudgetTooSmallError:
            continue
        forward, backward = extract(planner.joint, plan.assignment)
        simulated = simulate_step(forward, backward, step.num_fwd_outputs, scratch=planner.scratch)
        assert simulated == plan.memory
        assert plan.peak <= plan.budget
        if not any("rng_state" in node.name for node in backward.graph.nodes):
            results = run_step(forward, backward, step)
            reference = reference or results
            for one, other in zip(results, reference, strict=True):
                if isinstance(one, torch.Tensor):
                    assert torch.equal(one, other)
        measured = measure_real(forward, backward, step)
        if measured is not None:
            assert measured == pytest.approx(plan.peak, rel=0.03)
        peaks.append(plan.peak)
    assert peaks == sorted(peaks, reverse=True), "the peak is not monotone in the budget"


def test_the_peak_is_monotone_in_the_budget(seed):
    rng = random.Random(seed)
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    planner = planner_of(step, evaluations=6)
    least = planner.smallest().memory.peak / planner.unplanned.peak
    budgets = [rng.uniform(least, 1) for _ in range(12)]
    peaks = {}
    for budget in budgets:
        with contextlib.suppress(BudgetTooSmallError):
            peaks[budget] = planner.plan(budget).peak
            assert peaks[budget] <= budget * planner.unplanned.peak
    assert len(peaks) > 3
    ascending = [peaks[budget] for budget in sorted(peaks)]
    assert ascending == sorted(ascending)


def measure_real(forward, backward, step: Step) -> int | None:
    # States of generators get other names in the two graphs; whole steps with dropout are run elsewhere.
    if any("rng_state" in node.name for node in backward.graph.nodes):
        return None
    return measure_step(forward, backward, step.inputs, step.num_fwd_outputs).peak


def test_torch_is_never_cheaper_at_its_own_peaks():
    step = capture(Transformer(3), torch.randn(16, 16, 32))
    planner = planner_of(step, evaluations=80)
    for point in torch_points(planner.joint, seconds=planner.seconds, scratch=planner.scratch):
        plan = planner.plan(point.memory.peak)
        assert plan.recompute_seconds <= point.recompute_seconds * (1 + 1e-9), point.budget


def test_pareto_is_a_front():
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    front = pareto(step.read(), points=6, cost_model=launch_cost, evaluations=16)
    assert len(front) >= 3
    assert front[0].recompute_seconds == 0
    for one, other in itertools.pairwise(front):
        assert one.peak > other.peak and one.recompute_seconds < other.recompute_seconds


def test_a_budget_below_everything_is_proven_impossible():
    step = capture(Transformer(1), torch.randn(4, 8, 32))
    planner = planner_of(step, evaluations=8)
    with pytest.raises(BudgetTooSmallError, match="No plan can") as caught:
        planner.plan(0.01)
    smallest = planner.smallest().peak
    assert f"{smallest} bytes" in str(caught.value)
    assert smallest >= least_conceivable_peak(planner.problem)
    planner.plan(smallest)


def test_not_found_is_told_from_impossible():
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    planner = planner_of(step, evaluations=4)
    least = min(least_conceivable_peak(reading.problem) for reading in planner.readings)
    for order in range(len(planner.readings)):
        search = planner.search(order)
        search.best = lambda budget, also=(): None
        search.any = lambda budget, search=search: (
            search.unplanned if budget >= search.unplanned.peak else None
        )
    with pytest.raises(BudgetTooSmallError, match="none is proven impossible") as caught:
        planner.plan(least)
    assert f"reached is {planner.unplanned.peak} bytes" in str(caught.value)


def test_the_unplanned_step_needs_no_plan():
    step = capture(Views(), torch.randn(16, 16))
    plan = plan_for_budget(step.read(), 1.0, cost_model=launch_cost)
    assert plan.recomputed == () and plan.origin == "unplanned"
    assert plan_for_budget(step.read(), plan.unplanned_peak, cost_model=launch_cost).peak == plan.peak


@pytest.mark.parametrize("budget", ["1GiB", 2**30])
def test_bytes_above_the_unplanned_peak(budget):
    step = capture(Views(), torch.randn(16, 16))
    peak = plan_for_budget(step.read(), 1.0, cost_model=launch_cost).peak
    with pytest.raises(BudgetTooLargeError, match=f"1073741824 bytes, and .* is {peak} bytes"):
        plan_for_budget(step.read(), budget, cost_model=launch_cost)
    with pytest.raises(BudgetTooLargeError):
        plan_for_budget(step.read(), peak + 1, cost_model=launch_cost)


@pytest.mark.parametrize("budget", [-0.1, 1.5, "six", "5 parsecs", True, float("nan")])
def test_budgets_that_cannot_be_read(budget):
    step = capture(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(InvalidBudgetError):
        plan_for_budget(step.read(), budget, cost_model=launch_cost)


def test_tags_are_honoured():
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    unplanned = plan_for_budget(step.read(), 1.0, cost_model=launch_cost)
    saved = {value.name for value in unplanned.saved if value.operation == "aten.relu.default"}
    assert len(saved) == 2
    keep, drop = sorted(saved)
    for node in step.joint.graph.nodes:
        if node.name == keep:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        if node.name == drop:
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    plan = plan_for_budget(step.read(), 0.7, cost_model=launch_cost, evaluations=24)
    reasons = {value.name: value.reason for value in plan.saved}
    assert reasons.get(keep) == "must-save"
    assert drop not in reasons
    assert {value.name: value.reason for value in plan.recomputed}[drop] == "must-recompute"


def test_a_plan_tells_what_it_does():
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    plan = plan_for_budget(step.read(), 0.7, cost_model=launch_cost, evaluations=24)
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["peak"] == plan.peak <= data["budget"]
    assert sum(value["nbytes"] for value in data["saved"]) == plan.memory.saved_bytes
    assert all(value["times"] >= 1 and value["detail"] for value in data["recomputed"])
    assert plan.recompute_seconds == pytest.approx(sum(v.seconds * v.times for v in plan.recomputed))
    text = str(plan)
    assert "without a plan" in text and plan.recomputed[0].name in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_costs_may_be_a_function_only_of_known_models():
    step = capture(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(ValueError, match="cost_model"):
        plan_for_budget(step.read(), 0.5, cost_model="guess")
