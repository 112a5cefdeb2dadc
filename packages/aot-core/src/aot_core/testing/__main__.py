"""Print the capability table of a backend: ``python -m aot_core.testing BACKEND``."""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import json
import sys
from typing import Any

import torch

from aot_core.testing.check import UnknownCheckError, all_checks
from aot_core.testing.table import Capability, capability_table

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the checks and print the table.

    Returns:
        0 if every check gave eager's result, was skipped or failed as expected; 1 if not; 2 for a bad command line.
    """
    parser = argparse.ArgumentParser(prog="python -m aot_core.testing", description=__doc__)
    parser.add_argument("backend", nargs="?", help="a name that torch.compile knows, or MODULE:ATTRIBUTE")
    parser.add_argument("--list", action="store_true", help="print the checks and what each is about")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--options", type=_json_object, metavar="JSON", help="torch.compile's options=")
    parser.add_argument(
        "--expect", type=_json_object, metavar="JSON", help="known failures: an object, reason by check"
    )
    parser.add_argument("--only", action="append", metavar="CHECK", help="run this check; may be repeated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    if args.list:
        listed = [{"name": c.name, "theme": c.theme, "summary": c.summary} for c in all_checks()]
        print(json.dumps(listed, indent=2) if args.json else "\n".join(_line(row) for row in listed))
        return 0
    if args.backend is None:
        parser.error("name a backend, or ask for --list")
    try:
        # Each check prints its seed, which is for pytest; here the table has it.
        with contextlib.redirect_stdout(_Nowhere()):
            table = capability_table(
                _load(args.backend),
                expected_failures=args.expect,
                options=args.options,
                device=args.device,
                seed=args.seed,
                only=args.only,
                progress=_progress,
            )
    except (LookupError, UnknownCheckError) as error:
        parser.error(str(error))
    print(json.dumps(table.to_dict(), indent=2) if args.json else table)
    return 0 if table.ok else 1


def _progress(row: Capability) -> None:
    print(f"{row.name} {row.status}", file=sys.stderr)


class _Nowhere(io.StringIO):
    """A stream that forgets."""

    def write(self, text: str) -> int:
        return len(text)


def _load(reference: str) -> Any:
    """Return what ``torch.compile(backend=...)`` takes.

    Raises:
        LookupError: there is no such backend; says what there is.
    """
    module, colon, attribute = reference.partition(":")
    if colon:
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise LookupError(f"can't load backend {reference!r}: {error}") from error
    names = torch.compiler.list_backends(exclude_tags=())
    if reference not in names:
        close = difflib.get_close_matches(reference, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"torch.compile knows no backend {reference!r}.{hint} It has: {', '.join(names)}")
    return reference


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r} ({error})") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return value


def _line(row: dict[str, str]) -> str:
    return f"{row['theme']:<12} {row['name']:<42} {row['summary']}"


if __name__ == "__main__":
    sys.exit(main())
