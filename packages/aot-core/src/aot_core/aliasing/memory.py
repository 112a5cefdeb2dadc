"""Where the elements of a tensor lie."""

from __future__ import annotations

from typing import Any

import torch

from aot_core import _compat

__all__ = [
    "Geometry",
    "alias_root",
    "geometry_of",
    "has_memory",
    "is_contiguous",
    "is_leaf",
    "overlaps_itself",
    "storage_address",
]

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, strides and storage offset, the last two in elements."""


def has_memory(value: Any) -> bool:
    """Tell whether a value is a tensor whose elements lie in a storage of its own, by size and strides."""
    return (
        isinstance(value, torch.Tensor) and value.layout is torch.strided and not _compat.is_subclass(value)
    )


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Return size, strides and storage offset of a tensor; for a symbolic number, the one it stands for."""
    size, stride = (tuple(map(_compat.concrete, numbers)) for numbers in (tensor.size(), tensor.stride()))
    return size, stride, _compat.concrete(tensor.storage_offset())


def storage_address(tensor: torch.Tensor) -> int:
    """Return what tells whether two tensors lie in the same memory; 0 for one without elements."""
    storage = tensor.untyped_storage()
    if _compat.is_fake(tensor) or _compat.is_opaque(tensor):
        return int(storage._cdata)
    return storage.data_ptr()


def alias_root(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that autograd takes a view to be a view of; for one that is no view, itself."""
    base = tensor._base
    return tensor if base is None else base


def is_leaf(tensor: torch.Tensor) -> bool:
    """Tell whether autograd takes a tensor for a leaf.

    Of a view made without gradients and written since, autograd tells nothing: it is taken for one.
    """
    try:
        return tensor.is_leaf
    except RuntimeError:
        return True


def is_contiguous(geometry: Geometry) -> bool:
    """Tell whether elements follow each other without gaps, the last dimension fastest."""
    size, stride, _ = geometry
    expected = 1
    for n, s in zip(reversed(size), reversed(stride), strict=True):
        if n != 1 and s != expected:
            return False
        expected *= n
    return True


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Tell whether two elements of a tensor may lie in the same place."""
    if not has_memory(tensor):
        return False
    size, stride, _ = geometry_of(tensor)
    reach = 0
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False
