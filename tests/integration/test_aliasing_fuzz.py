"""The aliasing fuzzer itself: its plan is even, its programs are stable, and it finds what is planted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from aliasing.plan import INPUT_KINDS, MODES, MUTATIONS, OUTPUT_KINDS, plan_for
from aliasing.pool import run_in_chunks
from aliasing.program import Base, Call, Input, Program, Ref, Statement, Step
from aliasing.report import reproducer
from aliasing.run import Case, case_of, find_case, judge
from aliasing.shrink import shrink

A, B, T = Ref("a"), Ref("b"), Ref("t0")
PLAN = plan_for(0)


def as_it_is(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return gm.forward


def blind_to_writes(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the graph on clones: right values, but no argument is ever written to."""
    return lambda *inputs: gm(
        *(tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for tensor in inputs)
    )


def first_aliasing_only(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Right in the first call; in later ones as if no two arguments shared memory."""
    calls = Counter[str]()

    def run(*inputs: torch.Tensor) -> Any:
        calls["made"] += 1
        if calls["made"] == 1:
            return gm(*inputs)
        copies = [tensor.clone() for tensor in inputs]
        outputs = gm(*copies)
        with torch.no_grad():
            for tensor, copy in zip(inputs, copies, strict=True):
                tensor.copy_(copy)
        return outputs

    return run


def two_slices(offset: int, base: str = "plain") -> Call:
    """Two windows of four elements on one storage, the second ``offset`` behind the first."""
    windows = (Input(0, (Step("narrow", (0, at, 4)),)) for at in (2, 2 + offset))
    return Call((Base(1, (24,), base),), tuple(windows))  # type: ignore[arg-type]


def write_then_read(*calls: Call, mode: str = "no_grad") -> Case:
    """Write to ``a`` and return a product of ``b``, which may lie in the same memory."""
    body = (Statement(A, Step("mul_", (1.5,))), Statement(B, Step("mul", (2.0,)), T))
    case = case_of(0, PLAN, Program(body, (T,), calls, mode), Counter())  # type: ignore[arg-type]
    assert isinstance(case, Case), case
    return case


def test_each_kind_gets_its_quota():
    programs = 2_000
    plans = [plan_for(index) for index in range(programs)]
    for part, kinds in (
        ("inputs", INPUT_KINDS),
        ("output", OUTPUT_KINDS),
        ("mutation", MUTATIONS),
        ("mode", MODES),
    ):
        counts = Counter(getattr(plan, part) for plan in plans)
        assert set(counts) == set(kinds)
        fair = programs / len(kinds)
        if part != "mutation":  # Two kinds of output ask for a write where the plan had none.
            assert all(count > 0.9 * fair for count in counts.values()), counts
    assert len(set(plans)) > 0.75 * programs


def test_a_seed_makes_the_same_programs_and_another_seed_other_ones():
    first = [find_case(7, index).program for index in range(12)]
    assert first == [find_case(7, index).program for index in range(12)]
    assert first != [find_case(8, index).program for index in range(12)]


def test_twenty_programs_are_right_when_the_graph_runs_as_it_is():
    print("seed 3")
    for index in range(20):
        case = find_case(3, index)
        judgement = judge(case, as_it_is)
        # Dynamo itself may be wrong, and then it is Dynamo that is named.
        assert judgement.verdict in ("right", "Dynamo's fault"), (judgement, case.program.source)
        direct = judge(case, as_it_is, dynamo=False)
        assert direct.verdict == "right", (direct, case.program.source)


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_lost_write_is_found(dynamo):
    judgement = judge(write_then_read(two_slices(8)), blind_to_writes, dynamo=dynamo)
    assert judgement.verdict == "silently wrong"
    wrong = {(difference.subject, difference.aspect) for difference in judgement.differences}
    assert {("base 0", "values"), ("argument a", "values"), ("argument a", "version")} <= wrong
    assert ("output 0", "values") not in wrong


def test_aliasing_that_changes_between_calls_is_found():
    case = write_then_read(two_slices(8), two_slices(2))
    judgement = judge(case, first_aliasing_only)
    assert judgement.verdict == "silently wrong"
    assert {difference.call for difference in judgement.differences} == {1}


def test_a_lost_gradient_is_found():
    def without_gradients(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *inputs: tuple(output.detach() for output in gm(*inputs))

    judgement = judge(write_then_read(two_slices(8, "computed"), mode="training"), without_gradients)
    assert judgement.verdict == "silently wrong"
    aspects = {(difference.subject, difference.aspect) for difference in judgement.differences}
    assert {("output 0", "requires_grad"), ("gradient 0", "values")} <= aspects


def test_a_broken_alias_is_found():
    def copies(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *inputs: tuple(output.clone() for output in gm(*inputs))

    program = Program((Statement(A, Step("narrow", (0, 1, 2)), T),), (T,), (two_slices(8),), "no_grad")
    judgement = judge(case_of(0, PLAN, program, Counter()), copies)
    assert judgement.verdict == "silently wrong"
    assert ("output 0", "aliases") in {(d.subject, d.aspect) for d in judgement.differences}


def test_named_refusals_are_no_crashes():
    from aot_core.errors import AotError

    def refuse(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        raise AotError("No.")

    def crash(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        raise AssertionError("never mind")

    case = write_then_read(two_slices(8))
    for dynamo in (True, False):
        assert judge(case, refuse, dynamo=dynamo).verdict == "refused"
        crashed = judge(case, crash, dynamo=dynamo)
        assert (crashed.verdict, crashed.error) == ("loudly wrong", "AssertionError: never mind")


def test_programs_without_a_defined_result_are_no_cases():
    overlapping_copy = Program((Statement(A, Step("copy_", (B,))),), (), (two_slices(1),), "no_grad")
    assert case_of(0, PLAN, overlapping_copy, Counter()) == "writes what it reads in another order"
    leaf_write = Program((Statement(A, Step("mul_", (2.0,))),), (), (two_slices(8, "leaf"),), "training")
    assert "leaf" in case_of(0, PLAN, leaf_write, Counter())


def test_shrinking_keeps_the_fault_and_drops_the_rest():
    body = (
        Statement(B, Step("sin"), Ref("t0")),
        Statement(A, Step("mul_", (1.5,))),
        Statement(B, Step("sum"), Ref("t1")),
    )
    program = Program(body, (Ref("t0"), Ref("t1"), 5), (two_slices(8), two_slices(9)), "no_grad")
    small = shrink(
        case_of(0, PLAN, program, Counter()), lambda case: judge(case, blind_to_writes, dynamo=False)
    ).program
    assert [statement.step.method for statement in small.body] == ["add_"]
    assert len(small.calls) == 1


# Dynamo looks at `.grad` of arguments that are no leaves, and hides the warning unless warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_reproducer_runs_by_itself(dynamo, capsys):
    case = write_then_read(two_slices(2, "computed"), mode="training")
    exec(compile(reproducer(case, "eager", dynamo=dynamo), "<reproducer>", "exec"), {})
    eager, _, compiled = capsys.readouterr().out.removeprefix("eager\n").partition("compiled\n")
    assert eager and eager == compiled


WORKER = """
import json, os, sys, time
first, stop, path = sys.argv[-3:]
for index in range(int(first), int(stop)):
    if index == 7:
        os.abort()
    with open(path, "a") as file:
        file.write(json.dumps({"index": index}) + "\\n")
"""


def test_a_crash_of_the_interpreter_costs_one_program():
    def lost(index: int, how: str) -> dict[str, Any]:
        return {"index": index, "lost": how}

    command = [sys.executable, "-c", WORKER]
    records = list(run_in_chunks(command, range(3, 14), jobs=2, chunk=5, lost=lost))
    assert sorted(record["index"] for record in records) == list(range(3, 14))
    assert [record["index"] for record in records if "lost" in record] == [7]
