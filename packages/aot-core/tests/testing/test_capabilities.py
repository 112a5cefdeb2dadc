"""The capability table, from Python and from the command line."""

from __future__ import annotations

import json

import mutants
import pytest

from aot_core import AotError, aot_autograd, boxed_code, record_decision
from aot_core.testing import UnknownCheckError, capability_table
from aot_core.testing.__main__ import main

FEW = ["training", "output_strides", "input_data", "double_backward"]


@pytest.fixture(scope="module")
def table():
    return capability_table(
        mutants.drops_mutations,
        expected_failures={"input_data": "it never writes", "training": "it can't train"},
        only=FEW,
    )


def test_statuses(table):
    rows = {row.name: (row.status, row.reason) for row in table.rows}
    assert rows["output_strides"] == ("passed", "")
    assert rows["input_data"] == ("expected", "it never writes")
    assert rows["training"] == ("unexpected", "passed, though expected to fail: it can't train")
    assert not table.ok


def test_a_failure_has_its_reason():
    table = capability_table(mutants.drops_mutations, only=["input_data"])
    assert table.rows[0].status == "failed"
    assert table.rows[0].reason.startswith("AssertionError: input: values differ")
    assert not table.ok


def test_expected_failures_are_fine():
    table = capability_table(
        mutants.drops_mutations, only=["input_data"], expected_failures={"input_data": "it never writes"}
    )
    assert table.ok


def test_dict_is_json(table):
    told = json.loads(json.dumps(table.to_dict()))
    assert told["counts"] == {"passed": 2, "expected": 1, "unexpected": 1}
    assert told["ok"] is False
    assert [row["name"] for row in told["rows"]] == [row.name for row in table.rows]
    assert {"name", "theme", "summary", "status", "reason", "seconds"} == told["rows"][0].keys()


def test_text_has_every_row_under_its_theme(table):
    lines = str(table).splitlines()
    theme = lines.index("mutation")
    assert lines[theme + 1].split(None, 2) == ["input_data", "expected", "it never writes"]
    assert "2 passed, 1 expected, 1 unexpected" in lines[-1]


class UnsupportedWidthError(AotError, TypeError):
    """Stands for an error by which a backend says what it does not do."""


def deciding(*decision):
    """Make a backend that records a decision about each graph and runs it."""

    def compile_graph(gm, example_inputs):
        record_decision(*decision)
        return boxed_code(gm)

    return aot_autograd(name="deciding", fw_compiler=compile_graph)


def raising(error):
    """Make a backend that can compile nothing."""

    def compile_graph(gm, example_inputs):
        raise error

    return aot_autograd(name="raising", fw_compiler=compile_graph)


def only_row(backend, **arguments):
    table = capability_table(backend, only=["float64"], **arguments)
    return table.rows[0].status, table.rows[0].reason, table.ok


@pytest.mark.parametrize("action", ["fallback", "skip"])
def test_a_fallback_is_told_from_a_pass(action):
    decision = ("graph", action, "no-device", "nothing to run it on")
    assert only_row(deciding(*decision)) == ("fallback", "no-device: nothing to run it on", True)


def test_a_fallback_in_another_thread_is_seen():
    backend = deciding("graph", "fallback", "no-device")
    table = capability_table(backend, only=["threads_share_a_backend"])
    assert [(row.status, row.reason) for row in table.rows] == [("fallback", "no-device")]


@pytest.mark.parametrize("decision", [("mul", "skip", "too-small"), ("graph", "split", "two-halves")])
def test_other_decisions_are_no_fallback(decision):
    assert only_row(deciding(*decision)) == ("passed", "", True)


def test_a_refusal_is_told_from_a_failure():
    status, reason, ok = only_row(raising(UnsupportedWidthError("No float64 here.")))
    assert (status, ok) == ("refused", False)
    assert reason == "UnsupportedWidthError: No float64 here. See errors/unsupported-width"


@pytest.mark.parametrize("error", [RuntimeError("crashed"), AssertionError("can't happen")])
def test_a_broken_compiler_refuses_nothing(error):
    assert only_row(raising(error))[0] == "failed"


def test_what_is_expected_stays_expected():
    refuses = raising(UnsupportedWidthError("No float64 here."))
    assert only_row(refuses, expected_failures={"float64": "too wide"}) == ("expected", "too wide", True)


@pytest.mark.parametrize("where", ["only", "expected_failures"])
def test_unknown_check(where):
    value = {"trainin": "reason"} if where == "expected_failures" else ["trainin"]
    with pytest.raises(UnknownCheckError, match="'training'"):
        capability_table("eager", **{where: value})


def test_command_prints_the_table(capsys):
    assert main(["eager", "--only", "float64", "--only", "fullgraph"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Capabilities of eager on cpu, torch ")
    assert "2 passed" in out


def test_command_prints_json_and_fails_for_a_failure(capsys):
    assert main(["mutants:drops_mutations", "--only", "input_data", "--json", "--seed", "5"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["seed"] == 5
    assert told["rows"][0]["status"] == "failed"


def test_command_knows_expected_failures(capsys):
    known = json.dumps({"input_data": "it never writes"})
    assert main(["mutants:drops_mutations", "--only", "input_data", "--expect", known]) == 0
    assert "it never writes" in capsys.readouterr().out


def test_command_lists_checks_without_a_backend(capsys):
    assert main(["--list"]) == 0
    assert "double_backward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a backend"),
        (["aot_eagre"], "Did you mean 'aot_eager'?"),
        (["mutants:nothing"], "can't load backend 'mutants:nothing'"),
        (["eager", "--only", "trainin"], "'training'"),
        (["eager", "--options", "[1]"], "expected a JSON object"),
        (["eager", "--options", "{"], "expected a JSON object"),
    ],
)
def test_command_line_errors(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err
