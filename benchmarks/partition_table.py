"""All figures of the partitioner and the memory planner, each with its bar and whether it is met.

    python benchmarks/partition_table.py [--small]

Runs ``partition.py``, ``checkpoint_steps.py`` and ``peak_memory.py`` one after another, prints what they print as they
go, and at the end the rows of all three. About an hour on one quiet core; --small takes half of the depths, which is
enough to see what fails, and not what the bars ask for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VERDICTS = ("met ", "not met ", "         ")
"""How the lines of a table begin; see ``rows.py``."""


def run(script: str, *options: str) -> list[str]:
    """Run a benchmark, pass its output on, and return the lines of its table."""
    print(f"\n== {script} {' '.join(options)}".rstrip(), flush=True)
    rows = []
    command = [sys.executable, "-u", str(HERE / script), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(VERDICTS):
                rows.append(line.rstrip())
    if process.returncode:
        rows.append(f"not met  {script} ended with {process.returncode}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="smaller graphs, fewer rounds")
    small = parser.parse_args().small
    rows = run("partition.py", *(["--small"] if small else []))
    rows += run("checkpoint_steps.py", *(["--rounds", "3"] if small else []))
    rows += run("peak_memory.py", *(["--small"] if small else []))
    print("\n== all rows", *rows, sep="\n")


if __name__ == "__main__":
    main()
