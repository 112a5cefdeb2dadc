"""Rows of a table of results: what was measured, what must be reached, and whether it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

__all__ = ["Row", "print_rows"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure.

    Args:
        figure: What is measured.
        measured: What came out.
        bar: What must be reached; empty where the figure is only printed.
        met: Whether it was; None where there is no bar, or where nothing was measured.
    """

    figure: str
    measured: str
    bar: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "met", False: "not met", None: ""}[self.met]
        bar = f" (bar: {self.bar})" if self.bar else ""
        return f"{verdict:<8} {self.figure}: {self.measured}{bar}"


def print_rows(rows: Iterable[Row]) -> None:
    """Print rows one below the other."""
    print()
    for row in rows:
        print(row, flush=True)
