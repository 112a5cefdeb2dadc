"""What counts as eager's result, and what the error says when it is another."""

from __future__ import annotations

import pytest
import torch

from aot_core.testing.compare import assert_matches

EPS = torch.finfo(torch.float32).eps


def test_eager_s_own_error_is_the_yardstick():
    wide = torch.tensor([1.0, 2.0], dtype=torch.float64)
    eager = (wide + 0.01).to(torch.float32)
    assert_matches((wide + 0.029).to(torch.float32), eager, wide)
    with pytest.raises(AssertionError, match=r"largest error 0\.0\d+, allowed 0\.03"):
        assert_matches((wide + 0.031).to(torch.float32), eager, wide)


@pytest.mark.parametrize(
    ("dtype", "units"), [(torch.bfloat16, 2), (torch.float16, 2), (torch.float32, 8), (torch.float64, 64)]
)
def test_a_few_units_are_allowed_where_eager_is_exact(dtype, units):
    wide = torch.tensor([1.0, 0.5], dtype=torch.float64)
    eager = wide.to(dtype)
    unit = torch.tensor([torch.finfo(dtype).eps, 0], dtype=dtype)
    assert_matches(eager + units * unit, eager, wide)
    with pytest.raises(AssertionError, match="float64"):
        assert_matches(eager + (units + 1) * unit, eager, wide)


def test_exact_allows_no_unit():
    wide = torch.ones(2, dtype=torch.float64)
    eager = wide.to(torch.float32)
    with pytest.raises(AssertionError, match="values differ from those of eager"):
        assert_matches(eager + torch.tensor([EPS, 0]), eager, wide, exact=True)


@pytest.mark.parametrize(
    ("actual", "says"),
    [
        (torch.ones(2, dtype=torch.float64), "dtype differs"),
        (torch.ones(1, 2), "shape differs"),
        (torch.ones(2).to_sparse(), "layout differs"),
        (torch.ones(2, requires_grad=True), "requires_grad differs"),
        (torch.tensor([1.0, float("nan")]), "infinities or NaNs"),
        (torch.tensor([1.0, float("inf")]), "infinities or NaNs"),
        (None, "expected tensor"),
        ([1.0, 1.0], "structure differs"),
    ],
)
def test_other_differences(actual, says):
    with pytest.raises(AssertionError, match=says):
        assert_matches({"out": actual}, {"out": torch.ones(2)}, {"out": torch.ones(2)})


def test_infinities_compare_by_sign():
    eager = torch.tensor([float("inf"), float("-inf"), float("nan")])
    assert_matches(eager.clone(), eager, eager)
    with pytest.raises(AssertionError, match="infinities"):
        assert_matches(-eager, eager, eager)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (1, 2),
        (1, 1.0),
        (True, 1),
        ("a", "b"),
        (None, 0),
        ((1, 2), [1, 2]),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_plain_values_must_be_equal_and_of_one_type(actual, expected):
    with pytest.raises(AssertionError, match="eager"):
        assert_matches(actual, expected, expected)
    assert_matches(expected, expected, expected)


def test_integers_are_compared_without_rounding():
    big = torch.tensor([2**53, -(2**53)])
    with pytest.raises(AssertionError, match="largest error 1, allowed 0"):
        assert_matches(big + torch.tensor([1, 0]), big, big)


def test_message_shows_both_sides():
    eager = torch.zeros(2, 3)
    with pytest.raises(AssertionError) as caught:
        assert_matches({"out": [eager.t() + 1]}, {"out": [eager.t()]}, {"out": [eager.t().double()]})
    assert str(caught.value) == (
        "out[0]: values differ from those of eager in float64: largest error 1, allowed 0; eager gives "
        "float32[3, 2] with strides (1, 3) [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], the backend "
        "float32[3, 2] with strides (1, 3) [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]"
    )
