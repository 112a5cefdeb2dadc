"""Numbers that are drawn: of the right distribution, since they are not eager PyTorch's own."""

from __future__ import annotations

import math

import pytest
import torch
from regions import reference_executor, refusals, region_of

aten = torch.ops.aten
COUNT = 40_000
like = torch.empty(COUNT)

# Per distribution: how it is drawn, and its cumulative distribution function (in float64, from textbooks).
DRAWN = {
    "uniform": (lambda x: aten.uniform.default(x, -1.0, 3.0), lambda v: (v + 1) / 4),
    "normal": (
        lambda x: aten.normal_functional.default(x, 1.0, 2.0),
        lambda v: torch.special.ndtr((v - 1) / 2),
    ),
    "normal of a tensor": (
        lambda x: aten.normal.Tensor_float(torch.full_like(x, 1.0), 2.0),
        lambda v: torch.special.ndtr((v - 1) / 2),
    ),
    "normal of two tensors": (
        lambda x: aten.normal.Tensor_Tensor(torch.full_like(x, 1.0), torch.full_like(x, 2.0)),
        lambda v: torch.special.ndtr((v - 1) / 2),
    ),
    "log-normal": (
        lambda x: aten.log_normal.default(x, 0.5, 0.25),
        lambda v: torch.special.ndtr((v.log() - 0.5) / 0.25),
    ),
    "exponential": (lambda x: aten.exponential.default(x, 1.5), lambda v: 1 - torch.exp(-1.5 * v)),
    "cauchy": (lambda x: aten.cauchy.default(x, 1.0, 2.0), lambda v: torch.atan((v - 1) / 2) / math.pi + 0.5),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_distribution(name):
    """Kolmogorov and Smirnov: the largest distance of the two cumulative functions, 1.95/√n in one of a thousand."""
    draw, cumulative = DRAWN[name]
    values = drawn(draw).double().sort().values
    steps = torch.arange(1, COUNT + 1, dtype=torch.float64) / COUNT
    assert (cumulative(values) - steps).abs().max() < 1.95 / math.sqrt(COUNT)


def drawn(draw, x=like):
    return region_of(draw, x)([x])[0]


@pytest.mark.parametrize("p", [0.3, 0.99])
def test_tries(p):
    values = drawn(lambda x: aten.geometric.default(x, p))
    for tries in (1, 2, 5):
        share = (values == tries).double().mean().item()
        assert share == pytest.approx(p * (1 - p) ** (tries - 1), abs=0.012)
    assert values.min() == 1


@pytest.mark.parametrize(("low", "high"), [(0, 7), (-3, 2), (5, 6), (2**40, 2**40 + 2**31)])
def test_integers(low, high):
    like = torch.empty(COUNT, dtype=torch.int64)
    values = drawn(lambda x: aten.randint_like.low_dtype(x, low, high), like)
    assert values.min() >= low and values.max() < high
    if high - low < 10:
        shares = torch.bincount(values - low, minlength=high - low) / COUNT
        assert (shares - 1 / (high - low)).abs().max() < 0.012
    again = drawn(lambda x: aten.randint.low(low, high, [COUNT]) + x * 0, like)
    assert torch.equal(values, again), "the same seed and offset"


def test_too_many_integers_are_refused():
    whys = refusals(lambda x: aten.randint.default(2**33, [4]) + x, torch.ones(4))
    assert any("more than 2³² integers" in why for why in whys)


@pytest.mark.parametrize("training", [True, False])
def test_randomly_leaky(training):
    x, noise = torch.randn(4000), torch.zeros(4000)
    region = region_of(
        lambda x, noise: aten.rrelu_with_noise_functional.default(x, noise, 0.1, 0.4, training), x, noise
    )
    made, slopes = region([x, noise])
    negative = x < 0
    assert torch.equal(made[~negative], x[~negative])
    if training:
        assert torch.equal(made, x * slopes) and (slopes[~negative] == 1).all()
        drawn = slopes[negative].double()
        assert drawn.min() >= 0.1 and drawn.max() <= 0.4
        assert drawn.mean().item() == pytest.approx(0.25, abs=0.012)
    else:
        torch.testing.assert_close(made[negative], x[negative] * 0.25)
        assert torch.equal(slopes, noise)


def test_bits_follow_from_seed_and_offset():
    starts = iter([(3, 0), (3, 4), (3, 0)])
    executor = reference_executor(draw_seed=lambda device, distance: next(starts))
    region = region_of(lambda x: aten.exponential.default(x), like, executor=executor)
    one, other, again = (region([like])[0] for _ in range(3))
    assert torch.equal(one, again) and not torch.equal(one, other)
