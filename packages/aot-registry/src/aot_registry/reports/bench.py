"""The page of ``aot bench --html``: each workload's loss curves, times and memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aot_core.sizes import readable_bytes, readable_seconds
from aot_registry.bench.result import ContenderResult, WorkloadResult
from aot_registry.bench.table import COLUMNS, cells, notes, title
from aot_registry.reports.charts import Bar, Curve, bar_chart, curve_chart
from aot_registry.reports.distances import distance_curves
from aot_registry.reports.page import render
from aot_registry.reports.scale import linear_scale, log_scale
from aot_registry.reports.tables import Table

__all__ = ["bench_page"]

HUES = 8
"""Colours of the style sheet; with more contenders they begin anew."""

SHOWN_STEPS = 6
"""Steps of a loss curve that its table shows."""


def bench_page(results: Sequence[WorkloadResult]) -> str:
    """Return a page that shows comparisons: HTML that needs no other file, no script and no network.

    Args:
        results: What `aot_registry.bench.compare` returned, one per workload.

    Raises:
        MissingHtmlExtraError: jinja2 is not installed.
    """
    names = ", ".join(result.workload for result in results)
    return render("bench.html.jinja", title=f"aot bench: {names}", workloads=list(map(_workload, results)))


def _workload(result: WorkloadResult) -> dict[str, Any]:
    rows = result.contenders
    hues = {row.backend: number % HUES + 1 for number, row in enumerate(rows)}
    trained = [row for row in rows if row.losses]
    curves = [
        Curve(row.backend, _finite(row.losses), hues[row.backend], wide=row is rows[0]) for row in trained
    ]
    distances, same = distance_curves(curves)
    return {
        "name": result.workload,
        "about": title(result).partition(": ")[2],
        "notes": list(notes(result)),
        "failures": [(row.backend, row.traceback) for row in rows if row.traceback],
        "curves": curves,
        "losses": curve_chart(
            curves,
            linear_scale(value for curve in curves for value in curve.values if value is not None),
            label=f"Loss of each step of {result.workload} under {_names(trained)}",
        ),
        "loss_table": _loss_table(trained),
        "distances": distances,
        "same": same,
        "distance_chart": curve_chart(
            distances,
            log_scale(value for curve in distances for value in curve.values if value is not None),
            label=f"Distance of each loss from eager's over the steps of {result.workload}, on a logarithmic scale",
        ),
        "bars": list(_bar_charts(result, hues)),
        "table": Table(
            "All figures",
            [column.replace("-\n", "").replace("\n", " ") for column in COLUMNS],
            [cells(row) for row in rows],
            numbers=tuple(range(2, len(COLUMNS))),
        ),
    }


@dataclasses.dataclass(frozen=True)
class _Figure:
    """What one bar chart shows of each row.

    Args:
        heading: Above the chart.
        value: Length of the bar.
        words: Next to it.
        reference: A value to mark.
        spread: The range of the value.
    """

    heading: str
    value: Callable[[ContenderResult], float | None]
    words: Callable[[ContenderResult], str]
    reference: float | None = None
    spread: Callable[[ContenderResult], tuple[float, float] | None] = lambda row: None


def _bar_charts(result: WorkloadResult, hues: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield a heading and a chart for each figure that somebody has."""
    for figure in FIGURES:
        bars = [_bar(row, figure, hues[row.backend]) for row in result.contenders]
        if any(bar.value is not None for bar in bars):
            label = f"{figure.heading}: " + ", ".join(f"{bar.label} {bar.words}" for bar in bars)
            yield figure.heading, bar_chart(bars, label=label, reference=figure.reference)


def _bar(row: ContenderResult, figure: _Figure, hue: int) -> Bar:
    value = figure.value(row)
    if value is None:
        return Bar(row.backend, None, "not measured" if row.status == "trained" else row.status, hue=hue)
    low, high = figure.spread(row) or (None, None)
    return Bar(row.backend, value, figure.words(row), low=low, high=high, hue=hue)


def _step_words(row: ContenderResult) -> str:
    assert row.step_ratio is not None and row.step_seconds is not None  # measured together
    return f"{row.step_ratio.median:.2f}×, {readable_seconds(row.step_seconds)}"


def _step_spread(row: ContenderResult) -> tuple[float, float] | None:
    ratio = row.step_ratio
    return None if ratio is None else (ratio.lower_quartile, ratio.upper_quartile)


FIGURES = (
    _Figure(
        "Time of a step, as a multiple of eager's",
        lambda row: None if row.step_ratio is None else row.step_ratio.median,
        _step_words,
        reference=1.0,
        spread=_step_spread,
    ),
    _Figure(
        "Peak memory of a step, as a multiple of eager's",
        lambda row: row.peak_ratio,
        lambda row: f"{row.peak_ratio:.2f}×, {readable_bytes(row.peak_bytes or 0)}",
        reference=1.0,
    ),
    _Figure(
        "Compile time",
        lambda row: row.compile_seconds,
        lambda row: readable_seconds(row.compile_seconds or 0.0),
    ),
)


def _loss_table(rows: Sequence[ContenderResult]) -> Table:
    steps = max((len(row.losses) for row in rows), default=0)
    shown = sorted(
        {round(part * (steps - 1) / (SHOWN_STEPS - 1)) for part in range(SHOWN_STEPS)} if steps else set()
    )
    return Table(
        "Loss at some of the steps",
        ["backend", *(f"step {step + 1}" for step in shown)],
        [
            [row.backend, *(f"{row.losses[step]:.4f}" if step < len(row.losses) else "–" for step in shown)]
            for row in rows
        ],
        numbers=tuple(range(1, len(shown) + 1)),
    )


def _finite(values: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _names(rows: Sequence[ContenderResult]) -> str:
    return ", ".join(row.backend for row in rows) or "no backend"
