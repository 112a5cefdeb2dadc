"""Drawing a graph that is laid out: memory above, a lane for each kind of thing below it, over one axis."""

from __future__ import annotations

from collections.abc import Iterator

from aot_core.sizes import readable_bytes
from aot_registry.reports import svg
from aot_registry.reports.charts import grid_lines, shortened, tick_labels
from aot_registry.reports.scale import bytes_scale
from aot_registry.reports.step import Lane, StepPicture, words_for

__all__ = ["draw_step"]

MEMORY_HEIGHT = 150
LANE_HEIGHT = 38
CELL_HEIGHT = 14

MAX_OUTLINED = 120
"""Operations of a step up to which cells have outlines."""


def draw_step(step: StepPicture) -> str:
    """Return the picture of a graph that `picture_of` has laid out, as SVG."""
    parts: list[str] = []
    y = 0.0
    if step.memory:
        parts += _draw_memory(step)
        y = MEMORY_HEIGHT + 40
    for lane in (*step.lanes, *step.saved):
        parts += _draw_lane(lane, y, step.length)
        y += LANE_HEIGHT
    if 0 < step.backward < step.length:
        x = step.backward / step.length
        # Before all else, so that it runs behind the words.
        parts.insert(0, svg.line(x, 22 if step.memory else 18, x, y, class_="turn"))
    return svg.picture(*parts, height=y, label=_described(step))


def _draw_memory(step: StepPicture) -> Iterator[str]:
    scale = bytes_scale(step.memory)
    assert step.peak is not None  # there is one wherever there is memory
    top = 36
    heights = [scale.place(value) for value in step.memory]
    outline = [
        (position / step.length, height)
        for before, height in enumerate(heights)
        for position in (before, before + 1)
    ]
    area = [(0.0, 0.0), *outline, (1.0, 0.0)]
    yield svg.text("memory at each operation", 0, 14, class_="label")
    yield svg.text(f"at most {readable_bytes(step.peak.bytes)}", 1, 14, anchor="end", class_="value")
    yield from grid_lines(scale, top, MEMORY_HEIGHT)
    yield svg.plot(
        svg.polyline([area], class_="area"),
        svg.polyline([outline], class_="outline"),
        y=top,
        height=MEMORY_HEIGHT,
    )
    yield from tick_labels(scale, top, MEMORY_HEIGHT)
    highest = max(range(step.length), key=step.memory.__getitem__)
    yield svg.element(
        "circle",
        svg.title(f"peak: {readable_bytes(step.peak.bytes)} at {words_for(step.peak.node)}"),
        cx=svg.percent((highest + 0.5) / step.length),
        cy=f"{top + MEMORY_HEIGHT * (1 - heights[highest]):g}",
        r="4",
        class_="peak",
    )


def _draw_lane(lane: Lane, y: float, length: int) -> Iterator[str]:
    yield svg.text(shortened(lane.label), 0, y + 14, class_="label")
    if lane.words:
        yield svg.text(lane.words, 1, y + 14, anchor="end", class_="value")
    yield svg.rectangle(0, y + 19, 1, CELL_HEIGHT, class_="track")
    # Outlines tell neighbours apart, and leave nothing of cells as narrow as themselves.
    outlined = "" if length <= MAX_OUTLINED else " narrow"
    for span in lane.spans:
        yield svg.rectangle(
            span.start / length,
            y + 19,
            (span.end - span.start) / length,
            CELL_HEIGHT,
            svg.title(span.words),
            class_=f"cell {span.kind}{outlined}",
        )


def _described(step: StepPicture) -> str:
    """Say in words what the picture shows; the tables below it say the rest."""
    parts = [f"{step.backward} operations of the forward"]
    if step.backward < step.length:
        parts.append(f"{step.length - step.backward} of the backward")
    if step.peak is not None:
        parts.append(f"peak memory {readable_bytes(step.peak.bytes)} at {step.peak.node.name}")
    parts += [f"{lane.label}: {lane.words}" for lane in step.lanes if lane.words]
    if step.saved:
        parts.append(f"{len(step.saved) + step.saved_beside} values wait for the backward")
    return "; ".join(parts)
