"""Charts: bars and curves. Data in, SVG out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from aot_registry.reports import svg
from aot_registry.reports.scale import Scale

__all__ = ["Bar", "Curve", "bar_chart", "curve_chart", "grid_lines", "shortened", "tick_labels"]

ROW_HEIGHT = 42
BAR_HEIGHT = 14
CURVE_HEIGHT = 240
AXIS_HEIGHT = 22


@dataclasses.dataclass(frozen=True)
class Bar:
    """A row of a bar chart.

    Args:
        label: What it is about.
        value: Its length; None where there is none.
        words: The value, or why there is none.
        start: Where it begins; 0 but in a chart of times.
        low, high: The range of the value, if it has one.
        hue: Number of its colour; see ``--hue-1`` in the style sheet.
    """

    label: str
    value: float | None
    words: str
    start: float = 0.0
    low: float | None = None
    high: float | None = None
    hue: int = 1


def bar_chart(bars: Sequence[Bar], *, label: str, reference: float | None = None) -> str:
    """Draw bars below each other, each with its words above it.

    Args:
        bars: The longest reaches over the whole width.
        label: What the chart shows.
        reference: A value to mark, such as 1 where the bars are ratios.
    """
    ends = [bar.start + bar.value for bar in bars if bar.value is not None]
    ends += [bar.high for bar in bars if bar.high is not None]
    ends += [] if reference is None else [reference]
    longest = max(ends, default=0.0) or 1.0
    parts: list[str] = []
    for number, bar in enumerate(bars):
        parts += _row(bar, number * ROW_HEIGHT, longest)
    height = len(bars) * ROW_HEIGHT
    if reference is not None:
        for number in range(len(bars)):
            y = number * ROW_HEIGHT + 18
            parts.append(
                svg.line(reference / longest, y, reference / longest, y + BAR_HEIGHT + 8, class_="reference")
            )
    return svg.picture(*parts, height=height, label=label)


def _row(bar: Bar, y: float, longest: float) -> Iterator[str]:
    yield svg.text(shortened(bar.label), 0, y + 15, class_="label")
    yield svg.text(bar.words, 1, y + 15, anchor="end", class_="value")
    yield svg.rectangle(0, y + 22, 1, BAR_HEIGHT, class_="track")
    if bar.value is None:
        return
    tooltip = svg.title(f"{bar.label}: {bar.words}")
    yield svg.rectangle(
        bar.start / longest, y + 22, bar.value / longest, BAR_HEIGHT, tooltip, class_=f"bar hue-{bar.hue}"
    )
    if bar.low is not None and bar.high is not None:
        low, high, middle = bar.low / longest, bar.high / longest, y + 22 + BAR_HEIGHT / 2
        yield svg.line(low, middle, high, middle, class_="range")
        for end in (low, high):
            yield svg.line(end, middle - 4, end, middle + 4, class_="range")


@dataclasses.dataclass(frozen=True)
class Curve:
    """A curve of a curve chart.

    Args:
        label: What it shows.
        values: One per step; those that are not finite are gaps.
        hue: Number of its colour and of its dashes.
        wide: Draw it so wide that it is seen where another covers it.
    """

    label: str
    values: Sequence[float | None]
    hue: int = 1
    wide: bool = False


def curve_chart(curves: Sequence[Curve], scale: Scale, *, label: str, across: str = "step") -> str:
    """Draw curves over the same steps.

    Args:
        curves: Later ones are drawn over earlier ones.
        scale: Of their values.
        label: What the chart shows.
        across: What is counted from left to right.
    """
    steps = max((len(curve.values) for curve in curves), default=0)
    lines = [
        svg.polyline(
            runs, svg.title(curve.label), class_=f"curve hue-{curve.hue}" + (" wide" if curve.wide else "")
        )
        for curve in curves
        if (runs := list(_runs(curve.values, steps, scale)))
    ]
    top = 16
    axis = top + CURVE_HEIGHT
    return svg.picture(
        *grid_lines(scale, top, CURVE_HEIGHT),
        svg.plot(*lines, y=top, height=CURVE_HEIGHT),
        *tick_labels(scale, top, CURVE_HEIGHT),
        svg.text(f"{across} 1", 0, axis + 16, class_="axis"),
        svg.text(f"{across} {steps}", 1, axis + 16, anchor="end", class_="axis"),
        height=axis + AXIS_HEIGHT,
        label=label,
    )


def shortened(words: str, most: int = 30) -> str:
    """Return words that leave room for a figure beside them on a phone, the middle cut out of longer ones."""
    return words if len(words) <= most else f"{words[: most // 2]}…{words[-(most // 2 - 1) :]}"


def grid_lines(scale: Scale, y: float, height: float) -> Iterator[str]:
    """Yield a line for each tick of a vertical scale, to be drawn below what the scale is for."""
    for tick in scale.ticks:
        place = y + height * (1 - scale.place(tick))
        yield svg.line(0, place, 1, place, class_="grid")


def tick_labels(scale: Scale, y: float, height: float) -> Iterator[str]:
    """Yield the value of each tick, above its line on the left, to be drawn over all else."""
    for tick in scale.ticks:
        yield svg.text(scale.label(tick), 0, y + height * (1 - scale.place(tick)) - 3, class_="axis")


def _runs(values: Sequence[float | None], steps: int, scale: Scale) -> Iterator[list[tuple[float, float]]]:
    """Yield the stretches of finite values, as places in a plot."""
    run: list[tuple[float, float]] = []
    for step, value in enumerate(values):
        if value is None or not math.isfinite(value):
            if run:
                yield run
            run = []
        else:
            run.append((step / max(1, steps - 1), scale.place(value)))
    if run:
        yield run
