import math
import random

import pytest

from aot_registry.reports.scale import bytes_scale, linear_scale, log_scale

SEED = 9


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 1], (0, 0.5, 1)),
        ([0.23, 1.66], (0.5, 1.0, 1.5)),
        ([-3, 7], (0, 5)),
        ([0, 100_000], (0, 50_000, 100_000)),
        ([2.0001, 2.0004], (2.0001, 2.0002, 2.0003, 2.0004)),
    ],
)
def test_round_numbers_are_marked(values, ticks):
    assert linear_scale(values).ticks == pytest.approx(ticks)


def test_any_values_lie_on_their_scale():
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(300):
        magnitude = 10.0 ** draw.randint(-12, 12)
        values = [draw.uniform(-1, 1) * magnitude for _ in range(draw.randint(1, 5))]
        for scale in (linear_scale(values), linear_scale(map(abs, values), from_zero=True)):
            assert 1 <= len(scale.ticks) <= 7
            assert all(-1e-9 <= scale.place(tick) <= 1 + 1e-9 for tick in scale.ticks)
        scale = linear_scale(values)
        assert all(0 <= scale.place(value) <= 1 for value in values)
        assert list(scale.ticks) == sorted(set(scale.ticks))


@pytest.mark.parametrize("values", [[], [3.0], [0.0, 0.0], [-2.5]])
def test_few_values_have_a_scale_too(values):
    scale = linear_scale(values)
    assert scale.low < scale.high and all(0 <= scale.place(value) <= 1 for value in values)
    assert linear_scale([abs(value) for value in values], from_zero=True).place(0) == 0


def test_bytes_are_marked_in_their_unit():
    scale = bytes_scale([3 * 2**20 + 17, 5])
    assert [scale.label(tick) for tick in scale.ticks] == ["0", "1 MiB", "2 MiB", "3 MiB"]
    assert scale.place(3 * 2**20 + 17) == pytest.approx(1) and scale.place(0) == 0
    assert [bytes_scale([100]).label(tick) for tick in bytes_scale([100]).ticks] == ["0", "50 B", "100 B"]
    assert bytes_scale([]).place(0) == 0


def test_powers_of_ten():
    scale = log_scale([3e-7, 2e-3, 0.0])
    assert scale.ticks == pytest.approx((1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2))
    assert [scale.label(tick) for tick in scale.ticks[:2]] == ["1e-07", "1e-06"]
    assert scale.place(0.0) == 0 and scale.place(1e-7) == 0 and scale.place(1e-2) == pytest.approx(1)
    assert scale.place(1e-5) == pytest.approx(0.4)
    assert len(log_scale([1e-30, 1.0]).ticks) <= 6
    assert math.isclose(log_scale([]).place(10.0), 1)
