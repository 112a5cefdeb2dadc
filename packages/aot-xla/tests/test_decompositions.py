"""The operators that are spelled out, compared with ATen's own."""

from __future__ import annotations

import itertools

import pytest
import torch

from aot_xla.decompositions import clamp, copy, decompositions, divide, floor_divide, maximum, minimum

aten = torch.ops.aten
SPECIAL = torch.tensor([-1.0, 0.0, 1.5, float("inf"), -float("inf"), float("nan")])
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@pytest.mark.parametrize(("ours", "theirs"), [(maximum, torch.maximum), (minimum, torch.minimum)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_extremes(ours, theirs, dtype):
    values = SPECIAL.to(dtype) if dtype.is_floating_point else torch.tensor([-(2**62), -1, 0, 2**62])
    a, b = values[:, None], values[None, :]
    torch.testing.assert_close(ours(a, b), theirs(a, b), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize(("low", "high"), [(0, None), (None, 1), (-1, 1), (2, -2), (-0.5, 0.5), (None, None)])
def test_clamp(low, high):
    expected = SPECIAL if low is high is None else torch.clamp(SPECIAL, low, high)
    torch.testing.assert_close(clamp(SPECIAL, low, high), expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_integer_division(dtype, mode):
    limits = torch.iinfo(dtype)
    near = [0, 1, 2, 3, 7, limits.max // 2, limits.max // 3, limits.max - 1, limits.max]
    near += [] if limits.min == 0 else [-1, -2, -3, -7, limits.min // 2, limits.min // 3 + 1, limits.min + 1]
    # The smallest number divided by -1 has no result.
    pairs = torch.tensor([(a, b) for a, b in itertools.product(near, near) if b != 0], dtype=dtype)
    a, b = pairs.unbind(1)
    expected = torch.tensor([_divided(x, y, mode) for x, y in pairs.tolist()], dtype=dtype)
    assert torch.equal(divide(a, b, rounding_mode=mode), expected)
    assert divide(a, b, rounding_mode=mode).dtype == dtype


def _divided(a: int, b: int, mode: str) -> int:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if mode == "trunc" else a // b


def test_random_integer_division(seed):
    a, b = torch.randint(-(2**63), 2**63 - 1, (2, 2000))
    b = torch.where(torch.rand(2000) < 0.5, b, torch.randint(1, 2**20, (2000,)))
    expected = torch.tensor([x // y for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    assert torch.equal(floor_divide(a, b), expected)
    assert torch.equal(floor_divide(a, 7), a // 7)


def test_division_of_floats_is_left_alone():
    assert divide(SPECIAL, 2.0, rounding_mode="floor") is NotImplemented
    assert divide(SPECIAL, SPECIAL, rounding_mode="trunc") is NotImplemented
    assert divide(torch.tensor(4), 2, rounding_mode=None) is NotImplemented
    assert floor_divide(SPECIAL, 2) is NotImplemented


def test_mixed_integers_promote_as_eager_does():
    a, b = torch.tensor([7, -7], dtype=torch.int16), torch.tensor([2], dtype=torch.uint8)
    assert floor_divide(a, b).dtype == (a // b).dtype
    assert torch.equal(floor_divide(a, b), a // b)


def test_copy_is_functional():
    target, source = torch.zeros(2, 3), torch.arange(3)
    got = copy(target, source)
    assert torch.equal(got, torch.zeros(2, 3).copy_(source))
    assert got.dtype == torch.float32
    assert torch.equal(target, torch.zeros(2, 3))
    got.fill_(5)
    assert source.tolist() == [0, 1, 2]


def test_the_table_covers_what_is_traced():
    table = decompositions()
    for op in (
        "_native_batch_norm_legit_functional",
        "native_dropout",
        "native_dropout_backward",
        "copy",
        "maximum",
    ):
        assert getattr(aten, op).default in table
