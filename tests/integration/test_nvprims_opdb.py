"""A sample of the op database through claims, partition and regions: the seed is printed, a sweep takes all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "nvprims_opdb.py"


def run(*options: str) -> str:
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sample_equals_eager():
    seed = os.environ.get("AOT_TEST_SEED", str(random.SystemRandom().randrange(2**31)))
    print(f"AOT_TEST_SEED={seed}")
    dtypes = ("float32", "bfloat16", "int64")
    printed = run("--every", "60", "--samples", "3", "--seed", seed, "--dtypes", *dtypes)
    assert [line.split(",")[0] for line in printed.splitlines()] == list(dtypes)


def test_what_is_random_draws_eagers_numbers():
    for name in ("nn.functional.dropout", "exponential"):
        assert "1 entries (1 equal)" in run("--only", name, "--samples", "4")
