"""The layout of a step, on graphs written out by hand."""

import dataclasses

import pytest
from html_check import Page

from aot_core import Decision, GraphExplanation, NodeExplanation, SavedValue, StageExplanation
from aot_registry.reports.draw_step import draw_step
from aot_registry.reports.step import MAX_CELLS, MAX_SAVED, Span, picture_of


def node(name, *reads, operation="aten.op.default", source=None):
    return NodeExplanation(name, operation, 8, reads, source)


FORWARD = (node("a", "x"), node("b", "a"), node("c", "b", source="net.py:3"))
BACKWARD = (node("b", "a"), node("p", "b", "t"), node("q", "p", "a"), node("r", "q"), node("s", "r"))
GRAPH = GraphExplanation(
    "#0",
    "ok",
    "training",
    stages=(
        StageExplanation("joint", {}, (*FORWARD, *BACKWARD)),
        StageExplanation("forward", {}, FORWARD),
        StageExplanation("backward", {}, BACKWARD),
    ),
    saved=(
        SavedValue("x", "argument", "float32[2]", 8, "x"),
        SavedValue("a", "activation", "float32[2]", 2048, operation="aten.op.default", source="net.py:1"),
        SavedValue("c", "activation", "float32[2]", 16),
    ),
    analyses={
        "memory": {
            "forward": [
                {"name": n.name, "during": m, "scratch": 0} for n, m in zip(FORWARD, (8, 16, 24), strict=True)
            ],
            "backward": [
                {"name": n.name, "during": m, "scratch": s}
                for n, m, s in zip(BACKWARD, (30, 34, 20, 10, 5), (0, 6, 21, 0, 0), strict=True)
            ],
        }
    },
)


def spans(picture, label):
    (lane,) = [lane for lane in (*picture.lanes, *picture.saved) if lane.label == label]
    return [(span.start, span.end) for span in lane.spans]


def test_forward_then_backward_and_what_is_computed_again():
    picture = picture_of(GRAPH)
    assert (picture.length, picture.backward) == (8, 3)
    assert [lane.label for lane in picture.lanes] == ["forward", "backward", "computed again"]
    assert spans(picture, "forward") == [(0, 1), (1, 2), (2, 3)]
    assert spans(picture, "backward") == [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    assert spans(picture, "computed again") == [(3, 4)]
    assert picture.lanes[0].spans[2].words == "c = aten.op.default (net.py:3)"


def test_a_saved_value_lasts_until_it_is_last_read():
    picture = picture_of(GRAPH)
    assert [(lane.label, lane.words) for lane in picture.saved] == [("a, net.py:1", "2.0 KiB"), ("c", "16 B")]
    assert spans(picture, "a, net.py:1") == [(0, 6)]
    assert spans(picture, "c") == [(2, 8)], "returned by the backward, or read by nothing: to the end"


def test_many_saved_values_are_counted():
    many = tuple(SavedValue(f"v{i}", "activation", "", 100 + i) for i in range(MAX_SAVED + 5))
    picture = picture_of(dataclasses.replace(GRAPH, saved=many))
    assert (len(picture.saved), picture.saved_beside) == (MAX_SAVED, 5)
    assert picture.saved[0].label == f"v{MAX_SAVED + 4}"


def test_memory_and_its_peak():
    picture = picture_of(GRAPH)
    assert picture.memory == (8, 16, 24, 30, 40, 41, 10, 5)
    assert (picture.peak.bytes, picture.peak.stage, picture.peak.node.name) == (41, "backward", "q")


@pytest.mark.parametrize("memory", [{}, {"error": "ValueError: no"}, {"forward": "?", "backward": None}])
def test_without_memory_there_is_a_picture_all_the_same(memory):
    picture = picture_of(dataclasses.replace(GRAPH, analyses={"memory": memory}))
    assert (picture.memory, picture.peak, picture.length) == ((), None, 8)
    assert Page(draw_step(picture)).with_class("area") == []


def test_regions_and_islands():
    decisions = (
        Decision("forward", "region_0", "fuse", "region", nodes=("a", "c")),
        Decision("backward", "region_0", "fuse", "region", nodes=("p", "q", "r")),
        Decision("backward", "region_1", "fuse", "region", nodes=("s",)),
        Decision("backward", "region_1", "fallback", "region-failed-to-run"),
        Decision("backward", "island_0", "capture", "island", nodes=("b", "p", "made up")),
        Decision("backward", "graph", "fuse", "executor"),
    )
    picture = picture_of(dataclasses.replace(GRAPH, decisions=decisions))
    assert [(piece.stage, piece.name, piece.kind, len(piece.operations)) for piece in picture.pieces] == [
        ("forward", "region_0", "fused", 2),
        ("backward", "region_0", "fused", 3),
        ("backward", "island_0", "captured", 2),
    ]
    assert spans(picture, "fused regions") == [(0, 1), (2, 3), (4, 7)]
    assert spans(picture, "captured islands") == [(3, 5)]
    (lane,) = [lane for lane in picture.lanes if lane.label == "fused regions"]
    assert lane.words == "2, with 5 operations"
    assert lane.spans[2] == Span(4, 7, "region_0 of the backward: 3 operations", "fused odd")


def test_an_inference_graph_and_one_that_was_not_compiled():
    inference = GraphExplanation(
        "#1", "ok", "inference", stages=(StageExplanation("inference", {}, FORWARD),)
    )
    picture = picture_of(inference)
    assert (picture.length, picture.backward, picture.memory) == (3, 3, ())
    assert Page(draw_step(picture)).with_class("turn") == []
    assert picture_of(GraphExplanation("#2", "fallback", "uncompiled")) is None


def test_neighbours_of_a_large_graph_are_drawn_as_one():
    many = tuple(node(f"n{i}") for i in range(MAX_CELLS + 1))
    again = (many[0], many[1], node("z"), many[5])
    stages = (StageExplanation("forward", {}, many), StageExplanation("backward", {}, again))
    picture = picture_of(GraphExplanation("#3", "ok", "training", stages=stages))
    (whole,) = picture.lanes[0].spans
    assert (whole.start, whole.end) == (0, MAX_CELLS + 1)
    assert whole.words.startswith(f"{MAX_CELLS + 1} operations: n0 = ")
    start = MAX_CELLS + 1
    assert spans(picture, "computed again") == [(start, start + 2), (start + 3, start + 4)]


def test_the_drawing_has_the_proportions_of_the_layout():
    page = Page(draw_step(picture_of(GRAPH)))
    assert page.problems == []
    (again,) = page.with_class("recomputed")
    assert (again["x"], again["width"]) == ("37.5%", "12.5%")
    saved = page.with_class("saved")
    assert [(bar["x"], bar["width"]) for bar in saved] == [("0%", "75%"), ("25%", "75%")]
    assert [line["x1"] for line in page.with_class("turn")] == ["37.5%"]
    (peak,) = page.with_class("peak")
    assert peak["cx"] == "68.75%"
    (outline,) = page.with_class("outline")
    heights = [1 - float(point.split()[1]) / 1000 for point in outline["d"].removeprefix("M").split("L")]
    assert (
        heights[::2]
        == heights[1::2]
        == pytest.approx([m / 41 for m in (8, 16, 24, 30, 40, 41, 10, 5)], abs=1e-3)
    )
    label = page.elements[0][1]["aria-label"]
    assert "3 operations of the forward; 5 of the backward; peak memory 41 B at q" in label
    titles = page.texts["title"]
    assert "c = aten.op.default (net.py:3)" in titles and "peak: 41 B at q = aten.op.default" in titles
