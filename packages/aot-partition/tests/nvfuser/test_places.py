"""What is read or written at computed places: borders, images resized, windows, scatters."""

from __future__ import annotations

import pytest
import torch
from regions import check, operations, refusals, region_of

aten = torch.ops.aten
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.int64)
RESIZED = {
    "nearest": lambda x, size, by: aten.upsample_nearest2d.default(x, size, *by),
    "nearest-exact": lambda x, size, by: aten._upsample_nearest_exact2d.default(x, size, *by),
    "bilinear": lambda x, size, by: aten.upsample_bilinear2d.default(x, size, False, *by),
    "bilinear by corners": lambda x, size, by: aten.upsample_bilinear2d.default(x, size, True, *by),
    "bicubic": lambda x, size, by: aten.upsample_bicubic2d.default(x, size, False, *by),
    "bicubic by corners": lambda x, size, by: aten.upsample_bicubic2d.default(x, size, True, *by),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("padding", [(2, 1, 0, 3), (0, 0, 1, 0), (-1, 2, 3, -1)])
def test_borders(dtype, padding):
    x = (torch.randn(2, 3, 4, 5) * 10).to(dtype)
    check(lambda x: aten.reflection_pad2d.default(x, padding), x)
    check(lambda x: aten.replication_pad2d.default(x, padding), x)


@pytest.mark.parametrize("name", ["reflection", "replication"])
def test_borders_of_one_and_three_dimensions(name):
    x = torch.randn(2, 3, 4, 5)
    one, three = (getattr(aten, f"{name}_pad{rank}d").default for rank in (1, 3))
    check(lambda x: one(x[0], [3, 1]), x)
    check(lambda x: three(x, [1, 2, 0, 3, 2, 1]), x)


@pytest.mark.parametrize("kind", RESIZED)
@pytest.mark.parametrize("size", [(9, 4), (1, 15), (5, 6), (10, 3)])
def test_an_image_of_another_size(kind, size):
    """In float64, where nothing but the places could differ; on the CPU nearest ones are found in double then."""
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    check(lambda x: RESIZED[kind](x, size, ()), x)


@pytest.mark.parametrize("kind", [kind for kind in RESIZED if "corners" not in kind])
def test_a_factor_counts_more_than_sizes(kind):
    """A factor of 2.3 enlarges 5 to 11, which is not 2.3 times as many."""
    x = torch.randn(1, 2, 5, 6)
    check(lambda x: RESIZED[kind](x, (11, 13), (2.3, 2.3)), x)


def test_images_of_one_and_three_dimensions():
    x = torch.randn(2, 3, 4, 5, 6)
    check(lambda x: aten.upsample_linear1d.default(x[0, 0], [9], False), x)
    check(lambda x: aten.upsample_trilinear3d.default(x, [7, 3, 9], False), x)
    check(lambda x: aten.upsample_nearest3d.default(x, [7, 3, 9]), x)
    check(lambda x: aten._upsample_nearest_exact1d.default(x[0, 0], [8]), x)


def test_of_an_image_what_is_needed_is_read():
    """Two places of each dimension, four reads of the tensor as it is: no image of half the new size in between."""
    region = check(lambda x: aten.upsample_bilinear2d.default(x, [9, 4], False), torch.randn(1, 2, 5, 6))
    assert operations(region).count("index_select") == 4


@pytest.mark.parametrize(
    "window",
    [([2, 3], [1, 1], [0, 0], [1, 1]), ([3, 2], [1, 2], [1, 2], [2, 1]), ([1, 1], [1, 1], [2, 0], [3, 3])],
)
def test_windows(window):
    check(lambda x: aten.im2col.default(x, *window), torch.randn(2, 3, 6, 7))
    check(lambda x: aten.im2col.default(x, *window), torch.randn(3, 6, 7).bfloat16())


def test_what_was_pooled_is_laid_back():
    x, at = torch.nn.functional.max_pool2d(torch.randn(2, 3, 6, 8), 2, return_indices=True)
    check(lambda x, at: aten.max_unpool2d.default(x, at, [6, 8]), x, at)
    last = [each.contiguous(memory_format=torch.channels_last) for each in (x, at)]
    # Traced, it lies row by row, as on CUDA; on the CPU it does not.
    (made,) = region_of(lambda x, at: aten.max_unpool2d.default(x, at, [6, 8]), *last)(last)
    assert torch.equal(made, aten.max_unpool2d.default(x, at, [6, 8]))
    x, at = torch.nn.functional.max_pool3d(torch.randn(1, 2, 4, 4, 4), 2, return_indices=True)
    check(lambda x, at: aten.max_unpool3d.default(x, at, [4, 4, 4], [2, 2, 2], [0, 0, 0]), x, at)


PUT = {
    "in front": (lambda i, j: [i], (3, 5, 6)),
    "behind": (lambda i, j: [None, None, j], (4, 5, 3)),
    "in the middle": (lambda i, j: [None, i, None], (4, 3, 6)),
    "side by side": (lambda i, j: [None, i, j], (4, 3)),
    "apart": (lambda i, j: [i, None, j], (3, 5)),
    "all": (lambda i, j: [i, j, i], (3,)),
    "of two dimensions": (lambda i, j: [None, i[:, None], j[None]], (4, 3, 3)),
    "a number": (lambda i, j: [None, i[0]], (4, 6)),
}


@pytest.mark.parametrize("name", PUT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_values_are_put(name, dtype):
    indices, shape = PUT[name]
    x, values = torch.randn(4, 5, 6).to(dtype), (torch.randn(shape) > 0).to(dtype)
    i, j = torch.tensor([-1, 0, 2]), torch.tensor([4, -3, 0])
    check(lambda x, i, j, v: aten.index_put.default(x, indices(i, j), v), x, i, j, values)


def test_one_value_for_all_places():
    x, i = torch.randn(4, 5), torch.tensor([3, 1])
    check(lambda x, i: aten.index_put.default(x, [None, i], x[0, :1].exp()), x, i)


def test_scatters():
    x, source = torch.randn(4, 6), torch.randn(5, 7)
    one, few = torch.tensor([[5], [0], [3], [3]]), torch.tensor([[1, 0, 3, 2], [0, 3, 1, 1]])
    check(lambda x, i: aten.scatter.value(x, 1, i, -1.0), x, one)
    check(lambda x, i, s: aten.scatter.src(x * 2, 1, i, s), x, one, source)
    check(lambda x, i, s: aten.scatter.src(x.reshape(6, 4), 0, i, s[:, :4]), x, few, source)
    check(lambda x, i: aten.scatter.value(x, -2, i, 2), x.long(), few)
    check(lambda x, i: aten.scatter.value(x, 0, i, 2.5), torch.tensor(1.0), torch.tensor(0))


def test_the_gradient_of_a_class_is_a_comparison():
    """It fuses with what is around it; nvFuser gives a scatter a kernel of its own."""
    region = check(
        lambda x, i: aten.scatter.value(torch.zeros_like(x), 1, i[:, None], -1.0) * x,
        torch.randn(4, 6),
        torch.tensor([5, 0, 2, 2]),
    )
    assert {"scatter", "segment_set"} & set(operations(region)) == set()


@pytest.mark.parametrize("step", [2, 3, 7])
@pytest.mark.parametrize(("start", "end"), [(0, 9), (2, 8), (-6, -1)])
def test_every_so_manieth_is_replaced(step, start, end):
    x = torch.randn(3, 9)
    new = x[:, start:end:step].exp()
    check(lambda x, new: aten.slice_scatter.default(x, new, 1, start, end, step), x, new)


def test_memory_at_steps_is_replaced():
    x = torch.randn(4, 6)
    check(lambda x: aten.as_strided_scatter.default(x, x[:2, :3] + 9, [2, 3], [1, 7], 3), x)
    whys = refusals(lambda x: aten.as_strided_scatter.default(x, x[:2, :2], [2, 2], [1, 1], 0), x)
    assert any("overlap" in why for why in whys)


def test_what_is_expanded_is_unfolded_before_it_is_gathered():
    """nvFuser would write it without its repetitions, and read it with them. Zeros keep their sign."""
    x = torch.tensor([[-0.0, 1.0, 2.0], [3.0, -0.0, 5.0]])
    at = torch.tensor([2, 0])

    def gathered(x, at):
        return 1 / aten.gather.default(x[:, None].expand(2, 2, 3) * 1, 2, at.expand(2, 2, 2))

    region = check(gathered, x, at)
    assert region([x, at])[0].isneginf().any()
    assert operations(region).count("full") == 2


def test_median_of_numbers():
    nan = float("nan")
    x = torch.tensor(
        [[nan, 1.0, 3.0, 2.0], [nan, nan, nan, nan], [4.0, -1.0, nan, 0.0], [9.0, 8.0, 7.0, 6.0]]
    )
    check(lambda x: aten.nanmedian.default(x), x)
    for dtype in (torch.float32, torch.bfloat16):
        check(lambda x: aten.nanmedian.dim(x, 1, True)[0], x.to(dtype))
    rows = x[[0, 2, 3]]
    check(lambda x: aten.nanmedian.dim(x, 1), rows)
    check(lambda x: aten.nanmedian.dim(x, 0), torch.randint(9, (5, 3)))


def test_a_range_of_floats():
    check(lambda x: aten.arange.start_step(0.5, 3.0, 0.25, dtype=x.dtype) * x, torch.ones(10))
    region_of(lambda x: aten.arange.start_step(0, 2, 0.1) + x[0], torch.ones(1))
