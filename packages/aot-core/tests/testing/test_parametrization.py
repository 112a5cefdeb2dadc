"""parametrize_backend_checks and the pytest plugin, in a pytest run of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aot_core.testing import UnknownCheckError, all_checks, parametrize_backend_checks
from aot_core.testing.check import BackendCheck

SUITE = """
import torch
from aot_core.testing import parametrize_backend_checks

clone = torch.clone

def backend(gm, example_inputs):
    return lambda *args: gm(*(clone(a) for a in args))

@parametrize_backend_checks(
    backend, expected_failures={"input_data": "it never writes", "float64": "it can't count"}
)
def test_conformance(check):
    check()
"""

SUITE_THAT_LEAVES_WORK = """
from aot_core import UnsafeGraphError, aot_autograd, boxed_code, record_decision
from aot_core.testing import parametrize_backend_checks

def compile_graph(gm, example_inputs):
    if any(str(node.meta["val"].dtype) == "torch.float64" for node in gm.graph.nodes if "val" in node.meta):
        raise UnsafeGraphError("No float64 here.")
    record_decision("graph", "fallback", "no-device")
    return boxed_code(gm)

@parametrize_backend_checks(aot_autograd(name="idle", fw_compiler=compile_graph))
def test_conformance(check):
    check()
"""


def test_a_test_per_check():
    def test_conformance(check):
        check()

    decorated = parametrize_backend_checks("eager", options={"a": 1}, seed=3)(test_conformance)
    assert decorated is test_conformance
    (mark,) = test_conformance.pytestmark
    name, parameters = mark.args
    assert name == "check"
    assert [p.id for p in parameters] == [check.name for check in all_checks()]
    assert parameters[0].values[0] == BackendCheck(all_checks()[0], "eager", {"a": 1}, "cpu", 3)


def test_unknown_expected_failure():
    with pytest.raises(UnknownCheckError, match="Did you mean 'double_backward'"):
        parametrize_backend_checks("eager", expected_failures={"doublebackward": "reason"})


def test_without_pytest(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(ImportError, match="capability_table"):
        parametrize_backend_checks("eager")


def run_suite(folder: Path, suite: str, *checks: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_backend.py").write_text(suite)
    (folder / "conftest.py").write_text('pytest_plugins = ["aot_core.testing.pytest_plugin"]\n')
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--capabilities", "table.json"),
            *(f"test_backend.py::test_conformance[{name}]" for name in checks),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_outcomes_and_summary(tmp_path: Path):
    done = run_suite(tmp_path, SUITE, "input_data", "input_slice", "float64", "float32")
    assert "2 failed, 1 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert "XPASS(strict)" in done.stdout
    assert "seed 0" in done.stdout
    assert "capabilities of backend" in done.stdout
    (table,) = json.loads((tmp_path / "table.json").read_text())["tables"]
    assert {row["name"]: (row["status"], row["reason"].partition(":")[0]) for row in table["rows"]} == {
        "input_data": ("expected", "it never writes"),
        "input_slice": ("failed", "AssertionError"),
        "float64": ("unexpected", "passed, though expected to fail"),
        "float32": ("passed", ""),
    }


def test_fallbacks_and_refusals_are_told(tmp_path: Path):
    done = run_suite(tmp_path, SUITE_THAT_LEAVES_WORK, "float64", "float32")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    (table,) = json.loads((tmp_path / "table.json").read_text())["tables"]
    assert {row["name"]: (row["status"], row["reason"]) for row in table["rows"]} == {
        "float64": ("refused", "UnsafeGraphError: No float64 here. See errors/unsafe-graph"),
        "float32": ("fallback", "no-device"),
    }
