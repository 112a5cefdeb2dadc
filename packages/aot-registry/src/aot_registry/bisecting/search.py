"""Halving: the smallest number of things that shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["first_that"]


def first_that(shows: Callable[[int], bool], candidates: Sequence[int]) -> int:
    """Return the first candidate that shows a fault; the last is known to, and whatever follows one that does, does.

    Args:
        shows: Tries one.
        candidates: In ascending order.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if shows(candidates[middle]):
            high = middle
        else:
            low = middle + 1
    return candidates[high]
