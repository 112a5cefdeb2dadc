"""The backends that installed packages declare: which of them train on a CPU, and what the others lack.

A new package joins by being installed.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Sequence

import aot_registry
from aot_core.protocol import Availability, BackendInfo, CompileReport

DECLARED: dict[str, BackendInfo] = {
    entry.name: entry.load() for entry in importlib.metadata.entry_points(group="aot_backends")
}
assert sorted(DECLARED) == aot_registry.list_backends(exclude_tags=None)

# Asked in this process: `aot_registry.probe` starts one for each, and test_command.py has `aot doctor` do so.
AVAILABILITY: dict[str, Availability] = {
    name: pkgutil.resolve_name(info.probe)() for name, info in DECLARED.items() if info.probe is not None
}

TRAINING = sorted(name for name, info in DECLARED.items() if {"training", "cpu"} <= set(info.tags))
UNUSABLE = sorted(name for name, availability in AVAILABILITY.items() if not availability.usable)


def assert_compiled(reports: Sequence[CompileReport], backend: str) -> None:
    """Fail unless a backend compiled a forward and a backward, and ran no graph uncompiled.

    A framework that leaves ``backend=`` out on its way to torch gives the right losses too.
    """
    assert reports, f"no graph reached {backend}: it was eager that computed this"
    assert {report.backend for report in reports} == {backend}
    assert [report.decisions for report in reports if report.status != "ok"] == []
    assert any("backward" in report.stages for report in reports)


def assert_refused(message: str, backend: str) -> None:
    """Fail unless a message says what `aot doctor` says: why a backend can't run here, and what to do."""
    availability = AVAILABILITY[backend]
    assert " ".join(availability.reason.split()) in " ".join(message.split())
    assert availability.remedy is not None
    assert availability.remedy in message
    assert "See errors/" in message
