"""A pytest plugin that ends the run with the capability table of each backend that was tested.

Named in a project's top ``conftest.py``::

    pytest_plugins = ["aot_core.testing.pytest_plugin"]

It also writes the tables as JSON where ``--capabilities FILE`` says.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from aot_core.report import recent_reports
from aot_core.testing.check import BackendCheck
from aot_core.testing.outcome import fallback_reason, refusal_in, reports_since
from aot_core.testing.table import Capability, CapabilityTable, backend_name, summarize

__all__: list[str] = []

PROPERTY = "aot_core_capability"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--capabilities``."""
    group = parser.getgroup("aot_core")
    group.addoption("--capabilities", metavar="FILE", help="write the capability tables as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Collect in every process; only the one that reports has anything to print."""
    config.pluginmanager.register(_Collector(config), "aot_core_capabilities")


class _Collector:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.rows: dict[tuple[Any, ...], list[Capability]] = {}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Properties travel with the report from pytest-xdist's workers to the process that prints.
        callspec = getattr(item, "callspec", None)
        case = callspec.params.get("check") if callspec else None
        if isinstance(case, BackendCheck):
            known = item.get_closest_marker("xfail")
            told = {
                "backend": backend_name(case.backend),
                "device": case.device,
                "seed": case.seed,
                "options": {key: repr(value) for key, value in (case.options or {}).items()},
                "name": case.check.name,
                "theme": case.check.theme,
                "summary": case.check.summary,
                "expected": known.kwargs.get("reason") if known else None,
            }
            item.user_properties.append((PROPERTY, told))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        told = dict(item.user_properties).get(PROPERTY)
        if not isinstance(told, dict):
            return (yield)
        before = recent_reports()
        try:
            return (yield)
        except Exception as error:
            refusal = refusal_in(error)
            told["refusal"] = refusal and summarize(refusal)
            raise
        finally:
            told["fallback"] = fallback_reason(reports_since(before))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties).get(PROPERTY)
        if not isinstance(told, dict) or not (report.when == "call" or report.skipped):
            return
        status, reason = _outcome(report, told)
        row = Capability(told["name"], told["theme"], told["summary"], status, reason, report.duration)
        key = (told["backend"], told["device"], told["seed"], tuple(told["options"].items()))
        self.rows.setdefault(key, []).append(row)

    def tables(self) -> list[CapabilityTable]:
        return [
            CapabilityTable(backend, torch.__version__, device, seed, dict(options), tuple(rows))
            for (backend, device, seed, options), rows in self.rows.items()
        ]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        tables = self.tables()
        for table in tables:
            terminalreporter.section(f"capabilities of {table.backend}")
            terminalreporter.write_line(str(table))
        target = self.config.getoption("--capabilities")
        if target and tables:
            document = {"tables": [table.to_dict() for table in tables]}
            Path(target).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _outcome(report: pytest.TestReport, told: dict[str, Any]) -> tuple[str, str]:
    expected = told["expected"]
    if hasattr(report, "wasxfail"):
        return "expected", expected or ""
    if report.passed:
        return ("fallback", told["fallback"]) if told.get("fallback") else ("passed", "")
    if report.skipped:
        return "skipped", str(report.longrepr[-1]) if isinstance(report.longrepr, tuple) else ""
    if expected is not None:
        return "unexpected", f"passed, though expected to fail: {expected}"
    if told.get("refusal"):
        return "refused", told["refusal"]
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return "failed", lines[0] if lines else ""
