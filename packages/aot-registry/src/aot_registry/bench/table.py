"""A comparison as a table for people: by rich on a terminal, else as aligned text."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from aot_core.sizes import readable_bytes
from aot_registry.bench.result import ContenderResult, WorkloadResult

if TYPE_CHECKING:
    import rich.console

__all__ = ["COLUMNS", "cells", "notes", "print_table", "render_plain", "title"]

COLUMNS = (
    "backend",
    "usable",
    "final\nloss",
    "deviation",
    "step\ntime",
    "spread",
    "peak\nmemory",
    "compile\ns",
    "graphs",
    "fall-\nbacks",
)
"""Headers, of one line or two: narrow ones let the table fit beside most prompts."""

UNCUT_WIDTH = 200
MISSING = "-"
MARKS = {"follows": "", "within spread": "~", "differs": "*", None: ""}


def print_table(result: WorkloadResult, file: TextIO | None = None) -> None:
    """Write a table and its notes to ``file`` (stdout by default)."""
    file = file or sys.stdout
    if file.isatty():
        try:
            import rich.console
        except ImportError:
            pass
        else:
            _print_rich(result, rich.console.Console(file=file))
            return
    file.write(render_plain(result))


def render_plain(result: WorkloadResult) -> str:
    """Return a table and its notes as text, whose width depends on its contents alone."""
    # A header of one line stands on the lower of two.
    headers = [column.split("\n") if "\n" in column else ["", column] for column in COLUMNS]
    rows = [*map(list, zip(*headers, strict=True)), *(cells(contender) for contender in result.contenders)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(2, ["-" * width for width in widths])
    table = [_aligned(row, widths) for row in rows]
    width = max(map(len, table))
    below = [line for note in notes(result) for line in textwrap.wrap(note, width, subsequent_indent="  ")]
    return "\n".join([title(result), "", *table, "", *below]).rstrip() + "\n"


def _print_rich(result: WorkloadResult, console: rich.console.Console) -> None:
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    table = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", vertical="bottom")
    for contender in result.contenders:
        table.add_row(*map(rich.text.Text, cells(contender)), style=_style(contender))
    console.print(rich.text.Text(title(result)))
    # On a terminal that is too narrow lines run over; rich would cut the figures.
    rich.console.Console(file=console.file, width=UNCUT_WIDTH).print(table)
    for note in notes(result):
        console.print(rich.text.Text(note))


def title(result: WorkloadResult) -> str:
    """Say what was trained, for how long and on what."""
    total = result.warm_up + result.rounds * result.steps
    return (
        f"{result.workload}: {total} steps ({result.warm_up} to warm up, {result.rounds} x {result.steps} timed), "
        f"seed {result.seed}, torch {result.torch_version} on {result.device}, "
        f"{result.threads} {'thread' if result.threads == 1 else 'threads'}"
    )


def cells(row: ContenderResult) -> list[str]:
    """Return a row's cells, one per column; marks on a deviation are explained by `notes`."""
    ratio = row.step_ratio
    return [
        row.backend,
        {"trained": "yes", "failed": "failed", "not usable": "no"}[row.status],
        MISSING if row.status != "trained" or row.final_loss is None else f"{row.final_loss:.4f}",
        MISSING if row.max_deviation is None else f"{row.max_deviation:.1e}{MARKS[row.verdict]}",
        MISSING if ratio is None else f"{ratio.median:.2f}x",
        MISSING if ratio is None else f"{ratio.lower_quartile:.2f}-{ratio.upper_quartile:.2f}",
        MISSING if row.peak_ratio is None else f"{row.peak_ratio:.2f}x",
        MISSING if row.compile_seconds is None else f"{row.compile_seconds:.1f}",
        MISSING if row.graphs is None else str(row.graphs),
        MISSING if row.fallbacks is None else str(row.fallbacks),
    ]


def notes(result: WorkloadResult) -> Iterator[str]:
    """Yield what does not fit into cells: the base of the ratios, reasons, fallbacks, deviations."""
    eager = result.contenders[0]
    if eager.step_seconds is not None:
        memory = (
            f" and {readable_bytes(eager.peak_bytes)} at its peak" if eager.peak_bytes is not None else ""
        )
        yield (
            f"1x is eager's {eager.step_seconds * 1e3:.1f} ms a step{memory}. Spread: quartiles over the rounds."
        )
    for row in result.contenders:
        if row.status != "trained":
            yield f"{row.backend}: {row.status}: {row.reason}"
        for reason in row.fallback_reasons:
            yield f"{row.backend}: {reason}"
    marks = {MARKS[row.verdict] for row in result.contenders}
    spread = f"{result.eager_spread:.1e}" if result.eager_spread is not None else "unknown"
    if "~" in marks:
        yield (
            f"~ Leaves eager's loss curve by more than {result.tolerance:.0e}, but about as far as eager itself does "
            f"with other dropout masks and rounding ({spread})."
        )
    if "*" in marks:
        yield (
            f"* Leaves eager's loss curve farther than eager itself does with other dropout masks and rounding "
            f"({spread}): a gradient may be wrong."
        )


def _style(row: ContenderResult) -> str:
    if row.status == "trained":
        return "yellow" if row.verdict == "differs" else ""
    return "red" if row.status == "failed" else "dim"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.ljust(width) if index < 2 else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()
