"""The comparison as a whole: rows, verdicts, and contenders that fail at every stage."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from aot_core.protocol import Availability
from aot_registry.bench.compare import compare
from aot_registry.bench.contenders import EAGER, Contender
from aot_registry.bench.errors import WorkloadContractError, WorkloadTrainingError
from aot_registry.bench.measure import Plan
from aot_registry.bench.yardstick import eager_spread, max_deviation

PLAN = Plan(steps=3, rounds=3)
EAGER_ONE = Contender(EAGER, Availability(True))


def run_as_is(graph, example_inputs):
    return graph.forward


def compare_with(workload, *contenders, plan=PLAN, **kwargs):
    result = compare(workload, [EAGER_ONE, *contenders], plan=plan, seed=5, **kwargs)
    return result, {row.backend: row for row in result.contenders}


def test_rows_of_backends_that_work(workload, register):
    result, rows = compare_with(
        workload, register(run_as_is, "as_is"), Contender("aot_eager", Availability(True))
    )
    assert list(rows) == ["eager", "as_is", "aot_eager"]
    for row in rows.values():
        assert row.status == "trained"
        assert len(row.losses) == PLAN.total_steps
        assert row.max_deviation == 0.0
        assert row.verdict == "follows"
        assert row.step_seconds > 0
        assert row.peak_bytes > 0
        assert row.compile_seconds >= 0
        assert row.final_loss == row.losses[-1]
    assert rows["eager"].step_ratio.to_dict() == {"median": 1, "lower_quartile": 1, "upper_quartile": 1}
    assert rows["eager"].peak_ratio == 1
    assert (rows["eager"].graphs, rows["as_is"].graphs, rows["aot_eager"].graphs) == (0, 1, 1)
    # No report, so nobody knows.
    assert (rows["eager"].fallbacks, rows["as_is"].fallbacks) == (0, None)
    assert result.eager_spread is None


def test_a_backend_with_reports(workload):
    _, rows = compare_with(workload, Contender("aot_core_eager", Availability(True)))
    row = rows["aot_core_eager"]
    assert row.status == "trained", row.reason
    assert row.max_deviation <= 1e-6
    assert (row.graphs, row.fallbacks, row.fallback_reasons) == (1, 0, ())
    assert row.backend_compile_seconds > 0


def test_more_contenders_than_dynamo_compiles_variants_of_one_function(workload, register):
    def make_backend():
        return lambda graph, example_inputs: graph.forward

    contenders = [register(make_backend(), f"backend_{number}") for number in range(10)]
    _, rows = compare_with(workload, *contenders, plan=Plan(steps=1, rounds=1))
    assert [row.graphs for row in rows.values()] == [0, *[1] * 10]


def test_failing_backends_get_their_rows_and_the_others_go_on(workload, register):
    calls = []

    def fails_to_compile(graph, example_inputs):
        raise RuntimeError("no code generator today")

    def fails_in_step_four(graph, example_inputs):
        def call(*args):
            calls.append(None)
            if len(calls) == 5:
                raise ArithmeticError("the fifth call")
            return graph.forward(*args)

        return call

    absent = Contender("absent", Availability(False, "libnv.so is missing", "Install it."))
    result, rows = compare_with(
        workload,
        register(fails_to_compile, "early"),
        absent,
        register(fails_in_step_four, "late"),
        Contender("no_such_backend", Availability(True)),
        register(run_as_is, "as_is"),
    )
    assert [row.status for row in result.contenders] == [
        "trained",
        "failed",
        "not usable",
        "failed",
        "failed",
        "trained",
    ]
    assert rows["early"].reason == (
        "BackendCompilerFailed: backend='fails_to_compile' raised: RuntimeError: no code generator today "
        "(after 0 steps)"
    )
    assert "no code generator today" in rows["early"].traceback
    assert rows["absent"].reason == "libnv.so is missing. Install it."
    assert rows["late"].reason == "ArithmeticError: the fifth call (after 2 steps)"
    assert rows["late"].losses == rows["eager"].losses[:2]
    assert "no_such_backend" in rows["no_such_backend"].reason
    assert rows["as_is"].max_deviation == 0.0
    for name in ("early", "absent", "late", "no_such_backend"):
        assert rows[name].step_ratio is None
        assert rows[name].verdict is None


def test_wrong_results_differ(workload, register):
    def wrong(graph, example_inputs):
        return lambda *args: tuple(1.05 * output for output in graph.forward(*args))

    # Without dropout, whose spread would hide five per cent.
    smooth = dataclasses.replace(workload, model=workload.model.eval())
    result, rows = compare_with(smooth, register(wrong, "wrong"), register(run_as_is, "as_is"))
    assert rows["wrong"].verdict == "differs"
    assert rows["as_is"].verdict == "follows"
    assert rows["wrong"].max_deviation > result.tolerance
    assert result.eager_spread < result.tolerance


def test_other_dropout_masks_are_within_eagers_own_spread(workload, register):
    def draws_first(graph, example_inputs):
        def call(*args):
            torch.rand(3)
            return graph.forward(*args)

        return call

    result, rows = compare_with(workload, register(draws_first, "draws_first"))
    assert rows["draws_first"].verdict == "within spread"
    assert result.tolerance < rows["draws_first"].max_deviation <= 3 * result.eager_spread


def test_nan_losses_differ(workload, register):
    def nan(graph, example_inputs):
        return lambda *args: tuple(math.nan * output for output in graph.forward(*args))

    _, rows = compare_with(workload, register(nan, "nan"))
    assert rows["nan"].status == "trained"
    assert math.isnan(rows["nan"].max_deviation)
    assert rows["nan"].verdict == "differs"
    data = rows["nan"].to_dict()
    assert (data["final_loss"], data["max_deviation"]) == (None, None)


def test_turns_rotate_and_progress_adds_up(workload, register):
    told = []
    contenders = [register(run_as_is, name) for name in ("one", "two")]
    compare_with(workload, *contenders, advance=lambda what, steps: told.append((what, steps)))
    assert sum(steps for _, steps in told) == 3 * (PLAN.total_steps + 1)
    rounds = [what.split(":")[0] for what, steps in told if "round" in what]
    assert rounds == ["eager", "one", "two", "one", "two", "eager", "two", "eager", "one"]


def test_a_workload_that_fails_in_eager(workload):
    broken = dataclasses.replace(workload, model=nn.Linear(4, 1))
    with pytest.raises(
        WorkloadTrainingError, match="perceptron fails in eager itself: RuntimeError"
    ) as caught:
        compare_with(broken)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_wrong_loss_function_keeps_its_own_error(workload):
    broken = dataclasses.replace(workload, loss_fn=lambda output, target: output)
    with pytest.raises(WorkloadContractError, match=r"got shape \[16, 1\]"):
        compare_with(broken)


def test_spread_is_rounding_where_nothing_is_random(workload):
    smooth = dataclasses.replace(workload, model=workload.model.eval())
    _, rows = compare_with(smooth)
    spread = eager_spread(smooth, rows["eager"].losses, seed=5)
    assert 0 < spread < 1e-5 * rows["eager"].losses[0]


def test_spread_is_large_with_dropout(workload):
    _, rows = compare_with(workload)
    assert eager_spread(workload, rows["eager"].losses, seed=5) > 1e-2


@pytest.mark.parametrize(
    ("losses", "reference", "expected"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.5),
        ([1.0, math.nan], [1.5, math.nan], 0.5),
        ([math.inf], [math.inf], 0.0),
        ([math.inf], [1.0], math.inf),
    ],
)
def test_max_deviation(losses, reference, expected):
    assert max_deviation(losses, reference) == expected


def test_max_deviation_of_one_nan():
    assert math.isnan(max_deviation([1.0, math.nan, 2.0], [1.0, 1.0, 2.0]))
