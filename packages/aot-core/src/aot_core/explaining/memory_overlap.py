"""Whether two tensors lie in one storage, and whether they have an element in common: exactly."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from aot_core.aliasing.memory import geometry_of, has_memory, storage_address

__all__ = ["Region", "region_of", "regions_overlap", "same_memory"]

MAX_MARKED_BYTES = 1 << 28
"""Bytes that are marked one by one to compare two views with gaps. Beyond, they are taken to overlap."""


@dataclasses.dataclass(frozen=True)
class Region:
    """The bytes of a storage that a tensor consists of.

    Args:
        size: Sizes of the dimensions that are not expanded.
        stride: Their strides, in bytes.
        offset: Of the first byte.
        item: Size of an element, in bytes.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    item: int

    @property
    def empty(self) -> bool:
        """Whether there is no element."""
        return 0 in self.size

    @property
    def end(self) -> int:
        """The first byte behind the last element."""
        return self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True)) + self.item

    @property
    def dense(self) -> bool:
        """Whether there is no gap between the first and the last byte."""
        expected = self.item
        for stride, size in sorted(zip(self.stride, self.size, strict=True)):
            if stride > expected:
                return False
            expected = max(expected, stride * (size - 1) + expected)
        return True


def same_memory(one: Any, other: Any) -> bool:
    """Tell whether two values are tensors in one storage; none without elements shares anything."""
    if not (has_memory(one) and has_memory(other)):
        return False
    address = storage_address(one)
    return address != 0 and address == storage_address(other)


def region_of(tensor: torch.Tensor) -> Region:
    """Return the bytes of its storage that a tensor consists of; a symbolic number counts as its example."""
    size, stride, offset = geometry_of(tensor)
    item = tensor.element_size()
    kept = [(n, s * item) for n, s in zip(size, stride, strict=True) if n != 1 and (s != 0 or n == 0)]
    return Region(tuple(n for n, _ in kept), tuple(s for _, s in kept), offset * item, item)


def regions_overlap(one: Region, other: Region) -> bool:
    """Tell whether two regions of one storage have a byte in common."""
    if one.empty or other.empty or one.end <= other.offset or other.end <= one.offset:
        return False
    if one.dense and other.dense:
        return True
    first, end = min(one.offset, other.offset), max(one.end, other.end)
    if end - first > MAX_MARKED_BYTES:
        return True
    marks = torch.zeros(end - first, dtype=torch.bool)
    _bytes_of(one, marks, first).fill_(True)
    return bool(_bytes_of(other, marks, first).any())


def _bytes_of(region: Region, marks: torch.Tensor, first: int) -> torch.Tensor:
    return marks.as_strided((*region.size, region.item), (*region.stride, 1), region.offset - first)
