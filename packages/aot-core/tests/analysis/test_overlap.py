"""Overlap against the bytes that views really touch."""

from __future__ import annotations

import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aot_core.analysis import compute_overlapping_inputs

CONFIG = types.SimpleNamespace(aot_autograd_arg_pos_to_source=None)

views = st.builds(
    lambda dtype, start, size, step: (dtype, start, size, step),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(1, 3),
)


def make(storage, view):
    dtype, start, size, step = view
    return torch.empty(0, dtype=dtype).set_(storage, start, (size,), (step,))


def touched(tensor):
    width = tensor.element_size()
    first = tensor.storage_offset()
    step = tensor.stride(0)
    return {(first + i * step) * width + byte for i in range(tensor.numel()) for byte in range(width)}


@given(st.lists(views, min_size=1, max_size=5), st.randoms())
def test_no_overlap_is_missed_and_order_does_not_matter(described, random):
    storage = torch.zeros(64, dtype=torch.float64).untyped_storage()
    inputs = [make(storage, view) for view in described]
    numbers = list(range(len(inputs)))
    found = compute_overlapping_inputs(CONFIG, inputs, numbers)
    bytes_of = [touched(tensor) for tensor in inputs]
    for i in numbers:
        if any(i != j and bytes_of[i] & bytes_of[j] for j in numbers):
            assert i in found
    shuffled = random.sample(numbers, len(numbers))
    assert compute_overlapping_inputs(CONFIG, inputs, shuffled) == found
    # Who overlaps is overlapped by another that is found too.
    assert len(found) != 1


def test_disjoint_views_of_one_storage_do_not_overlap():
    rows = list(torch.zeros(6, 4).unbind())
    assert compute_overlapping_inputs(CONFIG, ["not a tensor", *rows], [1, 2, 3, 4, 5, 6]) == set()


def test_rows_and_columns_that_interleave():
    matrix = torch.zeros(4, 4)
    assert compute_overlapping_inputs(CONFIG, [matrix[:, 0], matrix[:, 1]], [0, 1]) == set()
    assert compute_overlapping_inputs(CONFIG, [matrix[:, 0], matrix[0]], [0, 1]) == {0, 1}


def test_elements_lie_apart_and_bytes_do_not():
    single = torch.zeros(24)
    assert compute_overlapping_inputs(CONFIG, [single[8:12], single.view(torch.float64)[4:6]], [0, 1]) == {
        0,
        1,
    }


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_guard_and_no_other(dynamic, overlap):
    from torch._guards import StorageOverlap, TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    base = torch.zeros(12)
    real = [base[:5], base[4:10]] if overlap else [base[:5], base[6:]]
    kind = DimDynamic.DYNAMIC if dynamic else DimDynamic.STATIC
    fakes = [mode.from_tensor(x, symbolic_context=StatelessSymbolicContext([kind])) for x in real]
    config = types.SimpleNamespace(aot_autograd_arg_pos_to_source=["source of a", "source of b"])
    with tracing(TracingContext(mode)):
        context = TracingContext.get()
        found = compute_overlapping_inputs(config, fakes, [1, 0])
        guards = context.guards_context.aotautograd_guards
        assert found == ({0, 1} if overlap else set())
        if not dynamic:
            assert guards == []
            return
        (guard,) = guards
        assert isinstance(guard, StorageOverlap)
        sources = ["source of a", "source of b"]
        assert (guard.overlapping_sources, guard.non_overlapping_sources) == (
            (sources, []) if overlap else ([], sources)
        )
        assert env.guards == []
        guards.clear()
        assert compute_overlapping_inputs(config, fakes[:1], [0]) == set()
        assert guards == [], "one input has no other to overlap"
