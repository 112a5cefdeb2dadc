"""Where nvFuser's operations mean something else than ATen's: each trap has a test."""

from __future__ import annotations

import math

import pytest
import torch
from regions import check, operations, reference_executor, refusals, region_of

from aot_partition.nvfuser.definition import Recorder
from aot_partition.nvfuser.layouts import layout_of
from aot_partition.nvfuser.testing.interpreter import FusionSemanticsError, interpret

aten = torch.ops.aten
NARROW = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", NARROW)
def test_16_bit_arithmetic_is_cast_back(dtype):
    x = torch.randn(5, 7).to(dtype)
    region = check(lambda x: (x * x + x, torch.exp(x)), x)
    assert operations(region).count("cast") >= 4


@pytest.mark.parametrize("dtype", NARROW)
def test_16_bit_sums_accumulate_in_float32(dtype):
    """4096 ones are 4096 only where they are added in more than 8 bits."""
    ones = torch.ones(4096, 2, dtype=dtype)
    region = region_of(lambda x: aten.sum.dim_IntList(x, [0]), ones)
    assert region([ones])[0].tolist() == [4096.0, 4096.0]
    recorder = Recorder()
    x = recorder.define_tensor(shape=(-1, -1), contiguity=(True, True), dtype=dtype, is_cpu=False)
    recorder.add_output(recorder.ops.sum(x, (0,)))
    (uncast,) = interpret(recorder.finish(), [ones])
    assert uncast[0] < 4096


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_sums_of_narrow_integers_are_int64(name, dtype):
    """As in PyTorch, unless a dtype is named."""
    x = torch.tensor([[2**30, 0], [3, 1]]).to(dtype)
    reduce = getattr(aten, name)
    dims = [0] if name == "sum" else 0
    of_dims = reduce.dim_IntList if name == "sum" else reduce.dim_int
    region = check(
        lambda x: (
            reduce.default(x, dtype=torch.int32),
            of_dims(x, dims, True, dtype=torch.int32),
            of_dims(x, dims),
        ),
        x,
    )
    recorder = Recorder()
    given = recorder.define_tensor(shape=(-1, -1), contiguity=(True, True), dtype=dtype, is_cpu=False)
    recorder.add_output(getattr(recorder.ops, name)(given, (0,)))
    assert interpret(recorder.finish(), [x])[0].dtype is torch.int64
    assert operations(region).count("cast") >= 2


def test_integers_are_divided_truly():
    x, y = torch.tensor([7, -7, 1]), torch.tensor([2, 2, 3])
    region = check(lambda x, y: x / y, x, y)
    assert "truediv" in operations(region) and "div" not in operations(region)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_division(mode):
    a, b = torch.tensor([7, -7, 7, -7, 6]), torch.tensor([2, 2, -2, -2, 3])
    check(lambda a, b: aten.div.Tensor_mode(a, b, rounding_mode=mode), a, b)
    x, y = torch.tensor([1.0, -1.0, 0.3, 5.0, -0.0]), torch.tensor([0.1, 0.1, -0.1, 0.0, 2.0])
    check(lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode=mode), x, y)


def test_an_integer_tensor_and_a_float_give_float32():
    x = torch.arange(-3, 3)
    region = check(lambda x: (x * 0.5, x + 2.25, x > 0.5), x)
    assert region([x])[0].dtype is torch.float32


def test_integers_keep_all_their_bits():
    x = torch.tensor([2**62 + 1, -(2**62) - 3])
    check(lambda x: (x + 1, x * 1, x - 2**40), x)


def test_slices_have_steps_of_one():
    x = torch.randn(6, 9)
    region = check(lambda x: x[1:5, 2:7] * 2, x)
    assert "slice" in operations(region)
    assert any("step 2" in reason for reason in refusals(lambda x: x[:, ::2] * 2, x))


@pytest.mark.parametrize("correction", [0.5, 1.3])
def test_a_fractional_correction_is_not_claimed(correction):
    x = torch.randn(4, 5)
    assert any(
        f"correction {correction}" in why
        for why in refusals(lambda x: aten.var.correction(x, [1], correction=correction), x)
    )


@pytest.mark.parametrize("correction", [0, 1, 2, 5, None])
def test_a_whole_correction(correction):
    """5 of 5 leave no degree of freedom: infinite."""
    x = torch.randn(4, 5)
    check(lambda x: aten.var_mean.correction(x, [1], correction=correction, keepdim=True), x)


def test_an_expanded_input_is_not_called_contiguous():
    x = torch.randn(3, 1).expand(3, 4)
    assert layout_of(x.shape, x.stride()).contiguity[1] is None
    check(lambda x: x * 2, x)
    recorder = Recorder()
    said = recorder.define_tensor(shape=(-1, -1), contiguity=(True, True), dtype=torch.float32, is_cpu=False)
    recorder.add_output(recorder.ops.exp(said))
    with pytest.raises(FusionSemanticsError):
        interpret(recorder.finish(), [x])


def test_no_elements():
    """Claims refuse them; a region that meets them at run time leaves them to ATen."""
    assert any("without elements" in why for why in refusals(lambda x: x * 2, torch.ones(0, 3)))
    region = region_of(lambda x: (x * 2).sum(0), torch.ones(4, 3))
    assert region([torch.ones(0, 3)])[0].tolist() == [0.0, 0.0, 0.0]


def test_a_view_of_an_input_stays_a_view():
    x = torch.randn(4, 6)
    region = region_of(lambda x: (aten.view.default(x, [24]), x * 2), x)
    view, _ = region([x])
    assert view.data_ptr() == x.data_ptr()
    assert "reshape" not in operations(region)


def test_a_view_of_a_result_is_made_by_aten():
    region = check(lambda x: torch.exp(x).t(), torch.randn(4, 6))
    assert "permute" not in operations(region)


def test_more_than_eight_dimensions_are_refused():
    x = torch.ones([1] * 9)
    assert any("8 dimensions" in why for why in refusals(lambda x: x * 2, x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.complex64])
def test_dtypes_that_nvfuser_lacks_are_refused(dtype):
    assert refusals(lambda x: x + x, torch.ones(3, dtype=dtype))


def test_nan_stays():
    x = torch.tensor([[math.nan, 1.0, math.inf], [2.0, -math.inf, 3.0]])
    check(lambda x: (x.clamp(-1, 1), torch.relu(x), torch.maximum(x, -x), x.amax(1), torch.sign(x)), x)
    check(lambda x: (aten.max.dim(x, 1), aten.argmin.default(x, 1), torch.nan_to_num(x)), x)


def test_ties_are_broken_by_the_first():
    x = torch.tensor([[1, 3, 3], [2, 2, 0]])
    check(lambda x: (aten.max.dim(x, 1), aten.argmax.default(x), x >= 3, x > 2), x)


def test_negative_indices_count_from_the_end():
    x, at = torch.randn(5, 4), torch.tensor([-1, 0, -5])
    check(lambda x, at: (aten.index.Tensor(x, [at]), aten.index.Tensor(x, [at, at + 1])), x, at)


def test_operands_of_other_ranks_are_aligned():
    x, y = torch.randn(4, 5), torch.randn(5)
    region = check(lambda x, y: (x + y, torch.where(y > 0, x, 0.0)), x, y)
    assert "broadcast" in operations(region)


def test_constants_are_exact():
    third = 1.0 / 3.0
    region = region_of(lambda x: x * third, torch.ones(2, dtype=torch.float64))
    assert region([torch.ones(2, dtype=torch.float64)])[0].tolist() == [third, third]
    assert repr(third) in region.translation.definition.source


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout_is_a_function_of_seed_and_offset(p):
    starts = iter([(3, 0), (3, 4), (3, 0)])
    executor = reference_executor(draw_seed=lambda device, distance: next(starts))
    x = torch.ones(64, 64)
    region = region_of(lambda x: aten.native_dropout.default(x, p, True), x, executor=executor)
    first, other, again = (region([x]) for _ in range(3))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert torch.equal(first[0], first[1] * (0.0 if p == 1 else 1 / (1 - p)))
    if p == 0.5:
        assert not torch.equal(first[1], other[1])
        assert abs(first[1].float().mean() - 0.5) < 0.05


def test_two_drawings_of_a_region_differ():
    x = torch.ones(64)
    one, other = region_of(lambda x: (torch.rand_like(x), torch.rand_like(x)), x)([x])
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("function", "taken"),
    [
        (lambda x, full: x.expand(4, 5, 3).exp() * 2, True),
        (lambda x, full: (x.expand(4, 5, 3) * full).sum(-1), True),
        (lambda x, full: ((x.expand(4, 5, 3) / 3).exp() * full).sum(-1), True),
        (lambda x, full: x.expand(4, 5, 3).exp().sum(-1), False),
        (lambda x, full: x.expand(4, 5, 3).permute(1, 0, 2).exp().amax(-1), False),
        (lambda x, full: x.expand(4, 5, 3) / x.expand(4, 5, 3).square().sum(-1, keepdim=True), False),
        (lambda x, full: (x.expand(4, 5, 3) * full[:, :1].expand(4, 5, 3)).sum(-1), False),
    ],
)
def test_what_is_repeated_is_not_reduced_before_it_is_met_in_full(function, taken):
    """A row comes out where four are due, or an assertion fails inside nvFuser."""
    found = refusals(function, torch.randn(5, 3), torch.randn(4, 5, 3))
    assert ("repeats what is reduced" in found) is not taken


def test_an_input_of_several_reductions_is_a_value_of_each():
    """nvFuser fills it up with one neutral element, and asserts that both ask for the same."""
    x = torch.randn(4, 5, 6)
    region = check(lambda x: (x.amin(1), x.amax(1), x.sum(1)), x)
    assert operations(region).count("set") == 3
    assert "set" not in operations(check(lambda x: x.amax(1), x))
