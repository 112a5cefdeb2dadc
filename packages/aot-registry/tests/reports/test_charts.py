import math

import pytest
from html_check import Page

from aot_registry.reports.charts import Bar, Curve, bar_chart, curve_chart, shortened
from aot_registry.reports.distances import distance_curves
from aot_registry.reports.scale import linear_scale


def part(percent):
    return float(percent.removesuffix("%")) / 100


def test_a_bars_width_is_its_value():
    bars = [Bar("a", 2.0, "2 s"), Bar("b", 0.5, "0.5 s", hue=3), Bar("c", None, "failed")]
    page = Page(bar_chart(bars, label="times"))
    assert page.problems == []
    assert [part(bar["width"]) for bar in page.with_class("bar")] == pytest.approx([1, 0.25])
    assert [part(bar["x"]) for bar in page.with_class("bar")] == [0, 0]
    assert page.texts["text"] == ["a", "2 s", "b", "0.5 s", "c", "failed"]
    assert page.texts["title"] == ["a: 2 s", "b: 0.5 s"]
    assert "hue-3" in page.with_class("bar")[1]["class"]


def test_ranges_and_the_reference_have_the_scale_of_the_bars():
    page = Page(bar_chart([Bar("a", 1.5, "", low=1.0, high=4.0)], label="", reference=1.0))
    (bar,) = page.with_class("bar")
    assert part(bar["width"]) == pytest.approx(1.5 / 4)
    whole = page.with_class("range")[0]
    assert (part(whole["x1"]), part(whole["x2"])) == pytest.approx((0.25, 1))
    assert [part(line["x1"]) for line in page.with_class("reference")] == [0.25]


def test_bars_of_times_begin_where_they_begin():
    page = Page(bar_chart([Bar("all", 4.0, ""), Bar("last", 1.0, "", start=3.0)], label=""))
    last = page.with_class("bar")[1]
    assert (part(last["x"]), part(last["width"])) == pytest.approx((0.75, 0.25))


def test_nothing_measured_is_a_chart_without_bars():
    page = Page(bar_chart([Bar("a", None, "not usable"), Bar("b", 0.0, "0")], label=""))
    assert page.problems == [] and [bar["width"] for bar in page.with_class("bar")] == ["0%"]


def points(curve):
    runs = [run.split("L") for run in curve["d"].removeprefix("M").split("M")]
    return [[tuple(float(number) / 1000 for number in point.split()) for point in run] for run in runs]


def test_a_curve_goes_through_its_values():
    values = [4.0, 1.0, 3.0]
    page = Page(curve_chart([Curve("loss", values, hue=2)], linear_scale(values), label="l"))
    assert page.problems == []
    (curve,) = page.with_class("curve")
    ((first, second, third),) = points(curve)
    assert (first, second) == (pytest.approx((0, 0)), pytest.approx((0.5, 1)))
    assert third == pytest.approx((1, 1 / 3), abs=1e-3)
    assert "hue-2" in curve["class"] and "wide" not in curve["class"]
    assert page.texts["text"] == ["1", "2", "3", "4", "step 1", "step 3"]


def test_a_value_that_is_not_finite_is_a_gap():
    values = [1.0, 2.0, None, math.inf, 3.0, 2.0]
    page = Page(curve_chart([Curve("a", values)], linear_scale([1, 3]), label=""))
    assert [len(run) for run in points(page.with_class("curve")[0])] == [2, 2]
    assert Page(curve_chart([Curve("a", [None])], linear_scale([]), label="")).with_class("curve") == []


def test_a_curve_that_ended_early_has_the_steps_of_the_others():
    page = Page(
        curve_chart([Curve("a", [0, 1, 2, 3, 4]), Curve("b", [0, 1])], linear_scale([0, 4]), label="")
    )
    assert points(page.with_class("curve")[1])[0][-1] == pytest.approx((0.25, 0.75))


def test_distances_from_the_first_curve():
    eager = Curve("eager", [1.0, 2.0, 3.0])
    same, off = Curve("same", [1.0, 2.0, 3.0], hue=2), Curve("off", [1.0, 2.5, None], hue=3)
    failed = Curve("failed", [1.0])
    leaving, alike = distance_curves([eager, same, off, failed])
    assert [(curve.label, curve.values, curve.hue) for curve in leaving] == [("off", [0.0, 0.5, None], 3)]
    assert alike == ["same"]


def test_long_names_leave_room():
    assert shortened("aot_mem_efficient") == "aot_mem_efficient"
    assert shortened("a" * 20 + "b" * 20) == "a" * 15 + "…" + "b" * 14
