"""Elements of SVG as text.

Places and sizes across are in percent of the picture's width, down in pixels. So a picture is as wide as the page lets
it be, and its text keeps its size on a phone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["element", "line", "percent", "picture", "plot", "polyline", "rectangle", "text", "title"]

UNITS = 1000
"""Width and height of the coordinates inside a `plot`."""


def element(tag: str, *children: str, **attributes: object) -> str:
    """Return ``<tag …>children</tag>``.

    Args:
        tag: Name of the element.
        children: SVG, put in as it is; `text` and `title` escape what they are given.
        attributes: Escaped. In names, ``_`` stands for ``-``, and one at the end for nothing. None leaves it out.
    """
    parts = [
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    ]
    return f"<{tag}{''.join(parts)}>{''.join(children)}</{tag}>"


def percent(part: float) -> str:
    """Return ``"12.5%"`` for 0.125."""
    return f"{100 * part:.4f}".rstrip("0").rstrip(".") + "%"


def picture(*children: str, height: float, label: str) -> str:
    """Return a picture as wide as its surroundings.

    Args:
        children: What is in it.
        height: In pixels.
        label: What it shows, for those who can't see it.
    """
    return element(
        "svg", *children, width="100%", height=f"{height:g}", role="img", aria_label=label, class_="chart"
    )


def title(words: str) -> str:
    """Return what pops up over the element that it is put into."""
    return element("title", html.escape(words, quote=False))


def text(words: str, x: float, y: float, *, anchor: str = "start", class_: str | None = None) -> str:
    """Return a line of text.

    Args:
        words: Escaped here.
        x: Part of the width at which its ``anchor`` lies.
        y: Of its base line, in pixels.
        anchor: ``"start"``, ``"middle"`` or ``"end"``.
        class_: Of the style sheet.
    """
    return element(
        "text",
        html.escape(words, quote=False),
        x=percent(x),
        y=f"{y:g}",
        text_anchor=None if anchor == "start" else anchor,
        class_=class_,
    )


def rectangle(x: float, y: float, width: float, height: float, *children: str, class_: str) -> str:
    """Return a rectangle: ``x`` and ``width`` in parts of the picture's width, ``y`` and ``height`` in pixels."""
    return element(
        "rect",
        *children,
        x=percent(x),
        y=f"{y:g}",
        width=percent(width),
        height=f"{height:g}",
        class_=class_,
    )


def line(x1: float, y1: float, x2: float, y2: float, *children: str, class_: str) -> str:
    """Return a straight line: across in parts of the picture's width, down in pixels."""
    return element(
        "line",
        *children,
        x1=percent(x1),
        y1=f"{y1:g}",
        x2=percent(x2),
        y2=f"{y2:g}",
        class_=class_,
    )


def plot(*children: str, y: float, height: float) -> str:
    """Return an area for `polyline`, as wide as the picture, whose corners are (0, 1) and (1, 0).

    Args:
        children: What is drawn in it.
        y: Of its upper edge, in pixels.
        height: In pixels.
    """
    return element(
        "svg",
        *children,
        x="0",
        y=f"{y:g}",
        width="100%",
        height=f"{height:g}",
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        overflow="visible",  # a line along an edge is drawn in its whole width
    )


def polyline(runs: Iterable[Sequence[tuple[float, float]]], *children: str, class_: str) -> str:
    """Return lines through points of a `plot`, each from (0, 0) below on the left to (1, 1).

    Args:
        runs: Each a line of its own, for a curve with gaps.
        children: Such as a `title`.
        class_: Of the style sheet.
    """
    commands = []
    for run in runs:
        points = [f"{UNITS * x:.6g} {UNITS * (1 - y):.6g}" for x, y in run]
        # A line of one point is drawn as a dot by its round end.
        commands.append(f"M{points[0]}" + "".join(f"L{point}" for point in points[1:] or points))
    return element("path", *children, d="".join(commands), vector_effect="non-scaling-stroke", class_=class_)
