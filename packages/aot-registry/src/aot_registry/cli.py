"""The command ``aot``: one module for each subcommand, imported when it is asked for.

A module of `COMMANDS` has ``add_parser(subparsers)``, which adds an argparse parser of the command's name and
sets its default ``run`` to a function from the parsed arguments to an exit status. It imports without torch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from aot_core.errors import AotError
from aot_registry.__about__ import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "list": "aot_registry.list_command",
    "doctor": "aot_registry.doctor.command",
    "bench": "aot_registry.bench.command",
    "bisect": "aot_registry.bisecting.command",
    "explain": "aot_registry.explaining.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit status: its own, 2 for an error of use, 130 if interrupted.

    Args:
        argv: Arguments without the program's name; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = _parser(arguments).parse_args(arguments)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except AotError as error:
        print(f"aot: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, `head` for one, has what it wanted. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("aot: interrupted", file=sys.stderr)
        return 130
    return status


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aot", description="Find, check and compare torch.compile backends."
    )
    parser.add_argument("--version", action="version", version=f"aot-registry {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    asked = arguments[0] if arguments else None
    for name in [asked] if asked in COMMANDS else COMMANDS:
        importlib.import_module(COMMANDS[name]).add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
