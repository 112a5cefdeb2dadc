"""Whether inputs lie apart in memory: asked at every call, so it is asked quickly.

Reading where each input begins is most of the cost. Only where that changed since the last call, it is searched
whether two inputs begin in the memory of one that is written.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from aot_core.aliasing.signature import is_view_of_leaf

__all__ = ["watch_apart"]

_FIRST_ELEMENT = torch.Tensor.data_ptr
"""Where a tensor's elements begin. Called by `map`, so that no line of Python runs for an input."""


def watch_apart(watched: list[int], changed: Collection[int], count: int) -> Callable[[Sequence[Any]], bool]:
    """Return what tells of the inputs of a call whether those that change share memory with no other.

    An input that is a view of a leaf does not count as lying apart: its leaf changes with it.

    Args:
        watched: Positions of the inputs that have memory of their own: strided tensors.
        changed: Positions of those that the graph changes.
        count: How many inputs there are.
    """
    take = _taking(watched, count)
    changed = sorted(changed)
    # Where the inputs of the last call lay that were found apart. Comparing costs a fraction of searching,
    # and from call to call most tensors stay where they are.
    found_apart: tuple[list[int], list[int]] | None = None

    def lie_apart(inputs: Sequence[Any]) -> bool:
        nonlocal found_apart
        starts = list(map(_FIRST_ELEMENT, take(inputs)))
        spans: list[int] = []
        for i in changed:
            if is_view_of_leaf(inputs[i]):
                return False
            storage = inputs[i].untyped_storage()
            spans += (storage.data_ptr(), storage.nbytes())
        if found_apart != (starts, spans):
            if _any_shared(starts, spans):
                return False
            found_apart = starts, spans
        return True

    return lie_apart


def _taking(positions: list[int], count: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what takes the values at these positions, of ``count`` values in all."""
    if len(positions) == count:
        return lambda values: values
    if len(positions) == 1:
        return lambda values: (values[positions[0]],)
    return operator.itemgetter(*positions)


def _any_shared(starts: Sequence[int], spans: Sequence[int]) -> bool:
    """Tell whether more than one tensor begins in any of some stretches of memory.

    Args:
        starts: Addresses of the tensors' first elements.
        spans: Address and bytes of one stretch after another.
    """
    ordered = sorted(starts)
    for begin, size in zip(spans[::2], spans[1::2], strict=True):
        first = bisect.bisect_left(ordered, begin)
        if bisect.bisect_left(ordered, begin + size, first) - first > 1:
            return True
    return False
