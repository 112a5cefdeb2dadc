"""Which inputs of one storage share memory, and the guard that keeps the answer true.

Two views of one storage need merging only if they overlap: the rows of a buffer that is handed out in slices
do not. torch decides by element offsets, which mean different places for different dtypes; here different
dtypes are compared by bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aot_core import _compat

__all__ = ["compute_overlapping_inputs"]


def compute_overlapping_inputs(
    aot_config: Any, fwd_inputs: list[Any], aliased_input_indices: list[int]
) -> set[int]:
    """Return those inputs that overlap another one in memory.

    With symbolic sizes the answer holds for the sizes of this call, so that a ``StorageOverlap`` guard on the
    inputs' sources is added: calls for which it would be another answer are compiled anew. Computing the
    answer adds no other guard, none on shapes in particular. Without known sources there is no such guard
    to add, and the shapes that the answer rests on are guarded in the usual way.

    Overlap is symmetric, and the answer does not depend on the order of the inputs. No overlap is missed;
    views that interleave without touching in more intricate ways than rows, columns, blocks and regular steps may
    be said to overlap.

    Args:
        aot_config: AOTAutograd's configuration, read for the sources of the inputs.
        fwd_inputs: All inputs of the function.
        aliased_input_indices: Numbers of those, all tensors, that share one storage.

    Returns:
        The numbers, a subset of ``aliased_input_indices``, of inputs that overlap at least one other of them.
    """
    numbers = list(aliased_input_indices)
    tensors = [fwd_inputs[number] for number in numbers]
    symbolic = any(_has_symbolic_layout(tensor) for tensor in tensors)
    sources = aot_config.aot_autograd_arg_pos_to_source
    context = _compat.tracing_context()

    with _shape_guards_suppressed(context, bool(sources)):
        positions = _compat.overlapping(tensors, symbolic=symbolic)
        across_dtypes = _overlapping_across_dtypes(tensors)

    if context is not None and symbolic and sources and len(numbers) > 1:
        # The guard asks torch's function again at run time, so that it must be told torch's own answer.
        inside = {numbers[position] for position in positions}
        _compat.guard_storage_overlap(
            context,
            [sources[number] for number in sorted(inside)],
            [sources[number] for number in sorted(set(numbers) - inside)],
        )
    if not symbolic:
        positions = _without_interleaved(tensors, positions)
    return {numbers[position] for position in positions | across_dtypes}


def _has_symbolic_layout(tensor: torch.Tensor) -> bool:
    layout = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return any(isinstance(number, torch.SymInt) for number in layout)


@contextlib.contextmanager
def _shape_guards_suppressed(context: Any, has_sources: bool) -> Iterator[None]:
    fake_mode = getattr(context, "fake_mode", None)
    shape_env = getattr(fake_mode, "shape_env", None)
    if shape_env is None or not has_sources:
        yield
        return
    with shape_env.suppress_guards():
        yield


def _without_interleaved(tensors: Sequence[torch.Tensor], positions: set[int]) -> set[int]:
    """Keep those of torch's overlapping tensors that overlap one which they do not merely interleave with.

    torch takes the columns of a matrix, and ``x[::2]`` and ``x[1::2]``, to overlap.
    """
    found: set[int] = set()
    for i, j in itertools.combinations(sorted(positions), 2):
        if {i, j} <= found or _interleave(tensors[i], tensors[j]):
            continue
        if _compat.overlapping([tensors[i], tensors[j]], symbolic=False):
            found.update((i, j))
    return found


def _interleave(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one dtype step over each other: no sum of their steps leads from one to the other."""
    steps = [
        stride
        for tensor in (one, other)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1
    ]
    distance = one.storage_offset() - other.storage_offset()
    step = math.gcd(*steps)
    return one.dtype == other.dtype and (distance % step != 0 if step else distance != 0)


def _overlapping_across_dtypes(tensors: Sequence[torch.Tensor]) -> set[int]:
    """Return positions of tensors whose bytes lie within the extent of a tensor of another dtype."""
    if len({tensor.dtype for tensor in tensors}) < 2:
        return set()
    found: set[int] = set()
    for (i, one), (j, other) in itertools.combinations(enumerate(tensors), 2):
        if one.dtype != other.dtype and _extents_meet(one, other):
            found.update((i, j))
    return found


def _extents_meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.numel() == 0 or other.numel() == 0:
        return False
    start, stop = _extent(one)
    other_start, other_stop = _extent(other)
    return bool(start < other_stop) and bool(other_start < stop)


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    # First byte, and the byte after the last one. Strides of tensors are never negative.
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset()
    return start * tensor.element_size(), (start + last + 1) * tensor.element_size()
