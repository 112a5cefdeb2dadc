"""TorchScript backends beside the other packages: under torch's own name, and what their benchmarks print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import aot_core
import aot_registry

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_activation_puts_it_under_torchs_name():
    model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    with aot_registry.activate(override=("aot_ts",)) as activation, aot_core.record_reports() as reports:
        assert dict(activation.overridden) == {"aot_ts": "aot_ts_fusion"}
        result = torch.compile(model, backend="aot_ts")(x)
    torch.testing.assert_close(result, model(x))
    assert [report.backend for report in reports] == ["aot_ts_fusion"]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_benchmark_of_the_op_database_prints_its_rows():
    printed = run(
        "torchscript_opdb.py", "--only", "linalg.inv", "--samples", "2", "--dtypes", "float32", "--verbose"
    )
    for group in ("forward, static", "forward, dynamic", "gradient, static", "gradient, dynamic"):
        assert f"{group} shapes: " in printed
    ours = [line for line in printed.splitlines() if line.startswith("  ours ")]
    theirs = [line for line in printed.splitlines() if line.startswith("  torch's own:")]
    assert len(ours) == len(theirs) == 4
    assert all("1 entries, 1 right (100.00 %)" in line for line in ours)
    assert "in FX: effect: _linalg_check_errors.default 2" in printed


def test_the_benchmark_of_fusions_prints_its_row():
    assert "one call of a fusion from TorchScript: " in run(
        "torchscript.py", "--only", "fusion", "--rounds", "1"
    )
