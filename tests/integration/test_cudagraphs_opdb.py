"""The benchmark of the op database counts what it says it counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cudagraphs_opdb.py"


def test_it_prints_its_rows():
    command = [sys.executable, str(SCRIPT), "--only", "index_put", "--verbose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        "forward and in place: 2 entries, 2 accepted (0 wholly), 0 refused, 0 not run by eager; "
        "2 exact (100.00 % of accepted), 0 silent mismatches, 0 errors"
    ) in done.stdout
    assert "forward with backward: 1 entries, 1 accepted (0 wholly)" in done.stdout
    assert "2 of 4 samples refused: aten.index_put.default [mask-index]" in done.stdout
