"""Ratios of synthetic timings, against values computed by hand."""

import pytest

from aot_registry.bench.measure import Plan, compile_seconds, ratio_to, rotated


def test_rounds_are_compared_with_eager_of_the_same_round():
    # The machine slows down fourfold; the contender takes twice as long as eager all the while.
    ratio = ratio_to([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    assert (ratio.median, ratio.lower_quartile, ratio.upper_quartile) == (2.0, 2.0, 2.0)


def test_median_and_quartiles():
    ratio = ratio_to([1.0, 2.0, 3.0, 4.0, 100.0], [1.0] * 5)
    assert (ratio.median, ratio.lower_quartile, ratio.upper_quartile) == (3.0, 2.0, 4.0)


def test_even_number_of_rounds():
    ratio = ratio_to([1.0, 2.0, 3.0, 4.0], [1.0] * 4)
    assert (ratio.median, ratio.lower_quartile, ratio.upper_quartile) == (2.5, 1.75, 3.25)


def test_one_round_has_no_spread():
    ratio = ratio_to([3.0], [2.0])
    assert ratio.to_dict() == {"median": 1.5, "lower_quartile": 1.5, "upper_quartile": 1.5}


def test_rounds_must_match():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        ratio_to([1.0, 2.0], [1.0])


def test_each_contender_takes_each_place_once():
    names = ["a", "b", "c"]
    orders = [rotated(names, turn) for turn in range(3)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert rotated(names, 3) == names
    assert rotated([], 1) == []


def test_compile_seconds_is_what_exceeds_steady_steps():
    assert compile_seconds(5.0, 2, 0.5) == 4.0
    assert compile_seconds(0.9, 2, 0.5) == 0.0


def test_plan_counts_all_steps():
    assert Plan(steps=4, rounds=3, warm_up=2).total_steps == 14


@pytest.mark.parametrize("field", ["steps", "rounds", "warm_up"])
def test_plan_refuses_less_than_one(field):
    with pytest.raises(ValueError, match=f"Plan.{field} must be at least 1, got 0"):
        Plan(**{field: 0})
