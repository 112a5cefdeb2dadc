"""Directives whose text comes from the installed packages, so that it can't fall behind them.

``backend-table``          every declared backend: summary, tags, options with their defaults
``conformance-checks``     every check of the conformance kit, by theme
``capability-tables``      how each backend fared in them, from reference/capabilities.json
``refusal-table``          what a CUDA graph can't hold, and why
``command-help COMMAND``   what ``COMMAND --help`` prints, for a command named in `PARSERS`
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import importlib
import importlib.metadata
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


class Generated(Directive):
    """A directive that is replaced by MyST text."""

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        self.state.nested_parse(
            StringList(list(self.lines()), source="from_code"), self.content_offset, container
        )
        return container.children


class BackendTable(Generated):
    def lines(self) -> Iterator[str]:
        entries = importlib.metadata.entry_points(group="aot_backends")
        for info in sorted((entry.load() for entry in entries), key=lambda info: info.name):
            module, _, attribute = info.target.partition(":")
            backend = getattr(importlib.import_module(module), attribute)
            yield from (f"**`{info.name}`**", "")
            yield from (f"{info.summary}. Tags: {', '.join(info.tags)}.", "")
            if info.overrides:
                yield from (f"`activate()` puts it under torch's name `{info.overrides}`.", "")
            yield from ("| option | type | default |", "|---|---|---|")
            for field in dataclasses.fields(backend.settings_type):
                kind = str(field.type).replace("|", "\\|")
                yield f"| `{field.name}` | `{kind}` | `{field.default!r}` |"
            yield ""


class ConformanceChecks(Generated):
    def lines(self) -> Iterator[str]:
        checks = importlib.import_module("aot_core.testing").all_checks()
        yield from (f"{len(checks)} checks, by theme:", "")
        for theme, group in itertools.groupby(checks, key=lambda check: check.theme):
            yield from (f"**{theme}**", "", "| check | what a user relies on |", "|---|---|")
            for check in group:
                summary = check.summary.replace("|", "\\|").replace("``", "`")
                yield f"| `{check.name}` | {summary} |"
            yield ""


OUTCOMES = {
    "passed": "works",
    "fallback": "falls back",
    "refused": "refused",
    "failed": "fails",
    "skipped": "can't be told",
}
CAPABILITIES = Path(__file__).parents[1] / "reference" / "capabilities.json"


class CapabilityTables(Generated):
    """The tables of ``capabilities.json``, which tools/capabilities.py writes."""

    def lines(self) -> Iterator[str]:
        told = json.loads(CAPABILITIES.read_text(encoding="utf-8"))
        themes: dict[str, list[str]] = told["checks"]
        usable = {name: entry["runs"] for name, entry in told["backends"].items() if "runs" in entry}
        runs = [(name, run) for name, of_backend in usable.items() for run in of_backend]
        yield from (f"Found with torch {told['torch']} on {told['device']}.", "")
        counts = [f"{theme} ({len(checks)})" for theme, checks in themes.items()]
        yield from (f"| backend | {' | '.join(counts)} |", f"|---|{'---|' * len(themes)}")
        for name, run in runs:
            cells = " | ".join(cell_of_theme(checks, run) for checks in themes.values())
            yield f"| {title_of_run(name, run)} | {cells} |"
        yield ""
        for name, run in runs:
            yield from (
                f"**{title_of_run(name, run)}**",
                "",
                "| outcome | checks | reason |",
                "|---|---|---|",
            )
            rest = total = sum(map(len, themes.values()))
            for exception in run["exceptions"]:
                checks = exception["checks"]
                rest -= len(checks)
                listed = ", ".join(f"`{each}`" for each in checks)
                shown = f"{len(checks)} of {total}" if len(checks) > total // 2 else listed
                yield f"| {OUTCOMES[exception['status']]} | {shown} | {in_cell(exception['reason'])} |"
            if rest:
                yield "| works | all others | |"
            yield ""
        yield from ("| not usable there | because |", "|---|---|")
        for name, entry in told["backends"].items():
            if "unusable" in entry:
                yield f"| `{name}` | {in_cell(entry['unusable'])} |"


def title_of_run(name: str, run: dict[str, Any]) -> str:
    options = f" with `{json.dumps(run['options'])}`" if run["options"] else ""
    return f"`{name}`{options}"


def cell_of_theme(checks: list[str], run: dict[str, Any]) -> str:
    """Say how the checks of a theme went: ``works``, or ``works 23, falls back 2``."""
    status = {check: each["status"] for each in run["exceptions"] for check in each["checks"]}
    counts = collections.Counter(OUTCOMES[status.get(check, "passed")] for check in checks)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES.values() if counts[outcome])


def in_cell(text: str) -> str:
    """Return a text as it can stand in a cell of a table: nothing in it is markup."""
    return re.sub(r"([\\`*_\[\]<>{}|$#~])", r"\\\1", text)


class RefusalTable(Generated):
    def lines(self) -> Iterator[str]:
        yield from ("| code | the operation … | operators | remedy |", "|---|---|---|---|")
        for rule in importlib.import_module("aot_cudagraphs.refusal_table").RULES:
            if rule.ops:
                ops = ", ".join(f"`{op}`" for op in sorted(rule.ops))
            else:
                ops = "any" if rule.when else "not an operator"
            some = "; some calls" if rule.ops and rule.when else ""
            yield f"| `{rule.code}` | {rule.reason} | {ops}{some} | {rule.remedy} |"


PARSERS: dict[str, tuple[str, list[str]]] = {
    "aot": ("aot_registry.cli", []),
    "aot list": ("aot_registry.cli", ["list"]),
    "aot doctor": ("aot_registry.cli", ["doctor"]),
    "aot bench": ("aot_registry.cli", ["bench"]),
    "aot bisect": ("aot_registry.cli", ["bisect"]),
    "aot explain": ("aot_registry.cli", ["explain"]),
    "python -m aot_core.testing": ("aot_core.testing.__main__", []),
}


class CommandHelp(Directive):
    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {}

    def run(self) -> list[nodes.Node]:
        module, arguments = PARSERS[self.arguments[0]]
        main = importlib.import_module(module).main
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit), plain_help():
            main([*arguments, "--help"])
        block = nodes.literal_block(printed.getvalue(), printed.getvalue())
        block["language"] = "text"
        return [block]


@contextlib.contextmanager
def plain_help() -> Iterator[None]:
    """Have argparse print help of one width and without colours, whatever terminal builds the pages."""
    formatter = argparse.HelpFormatter.__init__

    def of_one_width(self: Any, prog: str, *args: Any, **kwargs: Any) -> None:
        formatter(self, prog, *args, **{**kwargs, "width": 90})

    argparse.HelpFormatter.__init__ = of_one_width  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.HelpFormatter.__init__ = formatter  # type: ignore[method-assign]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("backend-table", BackendTable)
    app.add_directive("conformance-checks", ConformanceChecks)
    app.add_directive("capability-tables", CapabilityTables)
    app.add_directive("refusal-table", RefusalTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
