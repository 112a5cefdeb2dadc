"""Tell which installed backends are usable on this machine, and what is wrong with the others.

Each backend is imported in a process of its own, so one that crashes or hangs disturbs no other. The exit
status is 1 if something is broken, else 0; a backend that is in order but not for this machine is not broken.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

from aot_registry.discovery import Declaration
from aot_registry.doctor.diagnosis import Diagnosis, Examination, examine_backends
from aot_registry.probing import DEFAULT_TIMEOUT
from aot_registry.problems import Problem
from aot_registry.tables import print_table

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command ``aot``."""
    parser = subparsers.add_parser(
        "doctor", help="tell usable backends from installed ones", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT,
        metavar="S",
        help="seconds after which a backend counts as hanging (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Examine all backends, print what was found, and return the exit status."""
    examination = examine_backends(timeout=args.timeout, progress=_show_progress)
    if args.json:
        print(json.dumps(examination.to_dict(), indent=2))
    else:
        _print(examination)
    return 1 if examination.broken else 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text}")
    return seconds


def _show_progress(done: int, total: int, declaration: Declaration) -> None:
    if sys.stderr.isatty():
        line = f"probed {done}/{total}: {declaration.name}"
        print(f"\r\033[K{line}", end="" if done < total else "\r\033[K", file=sys.stderr, flush=True)


def _print(examination: Examination) -> None:
    print(f"torch {examination.torch or 'not installed'}, Python {examination.python}")
    if examination.diagnoses:
        rows = [
            (one.backend, f"{one.distribution} {one.version}", one.status, _headline(one))
            for one in examination.diagnoses
        ]
        print_table(("backend", "distribution", "status", "found"), rows)
    else:
        print("No installed distribution declares a backend.")
    for one in examination.diagnoses:
        for problem in one.problems:
            if problem.severity == "info" and one.status == "broken":
                continue  # a note would only stand between the reader and what is to be mended
            _print_problem(f"{one.backend} ({one.distribution} {one.version})", problem)
    for problem in examination.problems:
        _print_problem("metadata", problem)


def _headline(diagnosis: Diagnosis) -> str:
    codes = [problem.code for problem in diagnosis.problems if problem.severity != "info"]
    return ", ".join(codes) or diagnosis.found


def _print_problem(subject: str, problem: Problem) -> None:
    mark = {"error": "broken", "unavailable": "unavailable", "info": "note"}[problem.severity]
    print(f"\n{mark}: {subject} [{problem.code}]\n  {problem.reason}.")
    if problem.remedy:
        print(f"  → {problem.remedy}")
