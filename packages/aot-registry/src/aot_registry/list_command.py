"""``aot list``: which backends are installed, by whom, and what for. Reads metadata; never imports torch."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from aot_registry.discovery import Declaration, discover
from aot_registry.loading import LoadError, load_info
from aot_registry.tables import print_table

__all__ = ["add_parser", "describe", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command ``aot``."""
    parser = subparsers.add_parser("list", help="list the installed backends", description=__doc__)
    parser.add_argument("--all", action="store_true", help="debug backends too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the backends and return the exit status, 0."""
    packages = discover()
    records = [describe(declaration) for package in packages for declaration in package.declarations]
    problems = [problem for package in packages for problem in package.problems]
    shown = [record for record in records if args.all or "debug" not in record["tags"]]
    shown.sort(key=lambda record: record["name"])
    if args.json:
        print(json.dumps(shown, indent=2))
    else:
        _print(shown, hidden=len(records) - len(shown))
    for problem in problems:
        print(f"aot: {problem.reason}. {problem.remedy}", file=sys.stderr)
    return 0


def describe(declaration: Declaration) -> dict[str, Any]:
    """Return what is known of a backend without importing it, as JSON-ready data."""
    record: dict[str, Any] = {
        "name": declaration.name,
        "distribution": declaration.distribution,
        "version": declaration.version,
        "target": declaration.target,
        "summary": "",
        "tags": [],
        "overrides": None,
        "problem": None,
    }
    try:
        info = load_info(declaration)
    except LoadError as error:
        record["problem"] = error.problem.reason
    else:
        if info is not None:
            record.update(summary=info.summary, tags=list(info.tags), overrides=info.overrides)
            record["target"] = record["target"] or info.target
    return record


def _print(records: list[dict[str, Any]], hidden: int) -> None:
    if records:
        rows = [
            (
                record["name"],
                f"{record['distribution']} {record['version']}",
                ", ".join(record["tags"]),
                f"description can't be read: {record['problem']}" if record["problem"] else record["summary"],
            )
            for record in records
        ]
        print_table(("backend", "distribution", "tags", "summary"), rows)
    else:
        print("No backends.")
    if hidden:
        print(f"{hidden} debug backend{'s' if hidden > 1 else ''} not shown: aot list --all")
