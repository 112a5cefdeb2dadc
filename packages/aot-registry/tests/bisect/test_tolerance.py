"""The rule: max(absolute floor, relative floor, ten times eager's own error)."""

import math

import pytest
import torch

from aot_registry.bisecting.observation import Quantity
from aot_registry.bisecting.tolerance import Yardstick, floors


def observed(value, **fields):
    return {"output": Quantity("output", value, **fields)}


def failures(eager, found, exact=None, again=None):
    yardstick = Yardstick(
        observed(eager),
        observed(eager if again is None else again),
        None if exact is None else observed(exact),
    )
    return yardstick.failures(observed(found))


EXACT = torch.tensor([1.0, -3.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize(("error", "fails"), [(0.9e-2, False), (1.1e-2, True)])
def test_ten_times_eagers_own_error(error, fails):
    eager = (EXACT + 1e-3).float()
    found = (EXACT - torch.tensor([error, 0, 0], dtype=torch.float64)).float()
    (failure,) = failures(eager, found, EXACT) or [None]
    assert (failure is not None) == fails
    if fails:
        assert failure.aspect == "value"
        assert failure.error == pytest.approx(error, rel=1e-3)
        assert failure.allowed == pytest.approx(1e-2, rel=1e-3)
        assert failure.eager_error == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("part", "fails"), [(0.5, False), (4.0, True)])
def test_relative_floor(dtype, part, fails):
    eager = torch.tensor([1.0, 4.0], dtype=dtype)
    found = (eager.double() + torch.tensor([0, part * 4 * floors(dtype)[1]])).to(dtype)
    assert bool(failures(eager, found, eager.double())) == fails


@pytest.mark.parametrize(("error", "fails"), [(0.9e-7, False), (1.2e-7, True)])
def test_absolute_floor(error, fails):
    zeros = torch.zeros(3)
    assert bool(failures(zeros, zeros + error, zeros.double())) == fails


def test_where_eager_differs_from_itself_a_compiled_run_may():
    eager = torch.ones(3)
    assert failures(eager, eager + 5e-3)
    assert not failures(eager, eager + 5e-3, again=eager + 1e-3)


def test_a_float64_run_that_went_another_way_is_not_believed():
    eager = torch.tensor([1.0, 2.0])
    other_way = torch.tensor([2.0, 1.0], dtype=torch.float64)
    assert failures(eager, eager + 1e-2, other_way)
    assert not failures(eager, eager.clone(), other_way)


def test_a_value_that_is_all_rounding_is_measured_by_eagers_own():
    eager = torch.tensor([3e-6, -2e-6])
    nothing = torch.tensor([1e-17, 1e-17], dtype=torch.float64)
    assert not failures(eager, torch.tensor([-4e-6, 5e-6]), nothing)
    assert failures(eager, torch.tensor([-4e-6, 5e-4]), nothing)


def test_infinities_and_nans_stand_where_they_stand():
    eager = torch.tensor([math.inf, math.nan, 1.0])
    assert not failures(eager, eager.clone())
    for found in ([math.inf, math.nan, math.nan], [-math.inf, math.nan, 1.0], [math.inf, 0.0, 1.0]):
        assert failures(eager, torch.tensor(found))


def test_integers_are_equal_unless_rounding_decides_them():
    eager, found = torch.tensor([1, 2]), torch.tensor([1, 3])
    assert failures(eager, found, eager)
    assert not failures(eager, found, torch.tensor([1, 4])), "eager and float64 disagree: nobody is right"


@pytest.mark.parametrize(
    ("found", "aspect"),
    [
        (torch.ones(3, 2), "shape"),
        (torch.ones(2, 3, dtype=torch.float64), "dtype"),
        (None, "missing"),
        (5, "value"),
    ],
)
def test_what_is_no_value(found, aspect):
    assert [failure.aspect for failure in failures(torch.ones(2, 3), found)] == [aspect]


@pytest.mark.parametrize(
    ("field", "value", "aspect"),
    [
        ("stride", (1, 2), "stride"),
        ("requires_grad", True, "requires_grad"),
        ("shares", ("input",), "memory"),
    ],
)
def test_layout_and_memory(field, value, aspect):
    eager, found = observed(torch.ones(2, 3)), observed(torch.ones(2, 3), **{field: value})
    assert [failure.aspect for failure in Yardstick(eager, eager, None).failures(found)] == [aspect]


def test_what_only_one_run_has():
    eager = observed(torch.ones(1))
    yardstick = Yardstick(eager, eager, None)
    assert [failure.aspect for failure in yardstick.failures({})] == ["missing"]
    more = {**eager, "more": Quantity("output", 1)}
    assert [failure.aspect for failure in yardstick.failures(more)] == ["unexpected"]
