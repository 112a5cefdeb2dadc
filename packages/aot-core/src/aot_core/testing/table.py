"""The capability table: every check of one backend, and how it went."""

from __future__ import annotations

import dataclasses
import time
import unittest
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from aot_core.report import recent_reports
from aot_core.testing.check import Check, all_checks, verify_names
from aot_core.testing.outcome import fallback_reason, refusal_in, reports_since
from aot_core.testing.subject import Backend

__all__ = ["Capability", "CapabilityTable", "capability_table"]

STATUSES = ("passed", "fallback", "refused", "failed", "expected", "unexpected", "skipped")


@dataclasses.dataclass(frozen=True)
class Capability:
    """How one check went.

    Args:
        name: The check.
        theme: Its theme.
        summary: What a user relies on.
        status: ``"passed"``: compiled, and right; ``"fallback"``: right, because a graph or a part of one ran
            uncompiled; ``"refused"``: an `aot_core.AotError` told what the backend does not do; ``"failed"``: any
            other error, or a wrong result; ``"expected"``: failed, and was known to; ``"unexpected"``: passed,
            though it was known to fail; ``"skipped"``: can't be told here.
        reason: The decisions that fell back, the error, the reason why it was known to fail, or why it was skipped.
        seconds: How long it took.
    """

    name: str
    theme: str
    summary: str
    status: str
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class CapabilityTable:
    """All checks of one backend.

    Args:
        backend: Its name.
        torch: The version of PyTorch.
        device: Where the checks ran.
        seed: The seed that they ran with.
        options: The options that the backend was given.
        rows: One `Capability` per check.
    """

    backend: str
    torch: str
    device: str
    seed: int
    options: dict[str, Any]
    rows: tuple[Capability, ...]

    @property
    def ok(self) -> bool:
        """Whether every check gave eager's result, was skipped, or failed as expected."""
        return not any(row.status in ("failed", "refused", "unexpected") for row in self.rows)

    def counts(self) -> dict[str, int]:
        """Return how many checks have each status, those without any left out."""
        counts = {status: sum(row.status == status for row in self.rows) for status in STATUSES}
        return {status: count for status, count in counts.items() if count}

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-ready data."""
        return {**dataclasses.asdict(self), "ok": self.ok, "counts": self.counts()}

    def __str__(self) -> str:
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [
            f"Capabilities of {self.backend} on {self.device}, torch {self.torch}, seed {self.seed}"
            + (f", options {self.options}" if self.options else "")
        ]
        theme = None
        for row in self.rows:
            if row.theme != theme:
                theme = row.theme
                lines.append(f"\n{theme}")
            says = row.summary if row.status == "passed" else row.reason
            lines.append(f"  {row.name:<{width}}  {row.status:<10}  {says}".rstrip())
        seconds = sum(row.seconds for row in self.rows)
        tally = ", ".join(f"{count} {status}" for status, count in self.counts().items())
        lines.append(f"\n{tally} in {seconds:.1f} s")
        return "\n".join(lines)


def capability_table(
    backend: Backend,
    *,
    expected_failures: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    only: Iterable[str] | None = None,
    progress: Callable[[Capability], None] | None = None,
) -> CapabilityTable:
    """Run the checks against a backend and return how they went; no check stops the others.

    That a backend fell back is read from its decisions. Of one that records none, a fallback looks like a pass.

    Args:
        backend: A name that ``torch.compile`` knows, or the backend itself.
        expected_failures: Reason by name of check, for what is known to fail.
        options: ``torch.compile(options=...)``.
        device: Where modules and data live.
        seed: For everything random.
        only: Names of the checks to run; all of them by default.
        progress: Called with each row as it comes.

    Raises:
        UnknownCheckError: a name that no check has.
    """
    expected = dict(expected_failures or {})
    verify_names(expected, where="expected_failures")
    wanted = None if only is None else list(only)
    verify_names(wanted or (), where="only")
    rows = []
    for check in all_checks():
        if wanted is not None and check.name not in wanted:
            continue
        row = _try(check, expected.get(check.name), backend, options, device, seed)
        rows.append(row)
        if progress is not None:
            progress(row)
    return CapabilityTable(
        backend_name(backend), torch.__version__, str(device), seed, dict(options or {}), tuple(rows)
    )


def _try(
    check: Check,
    expected: str | None,
    backend: Backend,
    options: Mapping[str, Any] | None,
    device: torch.device | str,
    seed: int,
) -> Capability:
    start = time.perf_counter()
    status, reason = "passed", ""
    before = recent_reports()
    try:
        check.run(backend, options=options, device=device, seed=seed)
    except unittest.SkipTest as skip:
        status, reason = "skipped", str(skip)
    except Exception as error:
        refusal = refusal_in(error)
        if expected is not None:
            status, reason = "expected", expected
        elif refusal is not None:
            status, reason = "refused", summarize(refusal)
        else:
            status, reason = "failed", summarize(error)
    else:
        if expected is not None:
            status, reason = "unexpected", f"passed, though expected to fail: {expected}"
        elif fell_back := fallback_reason(reports_since(before)):
            status, reason = "fallback", fell_back
    return Capability(check.name, check.theme, check.summary, status, reason, time.perf_counter() - start)


def backend_name(backend: Backend) -> str:
    """Return the name of a backend that is given by name or as itself."""
    if isinstance(backend, str):
        return backend
    return str(getattr(backend, "name", None) or getattr(backend, "__name__", type(backend).__name__))


def summarize(error: BaseException) -> str:
    """Return an error's type and first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
