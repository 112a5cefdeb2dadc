"""Fresh memory laid out like a tensor's, and copies into it.

A recording is specialized on strides: kernels are chosen by them, so what stands in for an input has the strides of
the input, stride 0 and overlapping windows included. ``copy_`` refuses to write to those; what it can write to is
the memory behind them, once.
"""

from __future__ import annotations

import dataclasses

import torch

from aot_cudagraphs import _compat

__all__ = ["Layout", "bytes_of", "empty_like_strided", "layout_of", "tensor_in"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How to copy a tensor into fresh memory of the same strides.

    Args:
        span: Elements between the first and the last, both included; 0 for a tensor without elements.
        plain: ``copy_`` can write to such a tensor as it is.
        size: Where it can't: sizes of a view that covers each element of the memory once.
        stride: Strides of that view.
    """

    span: int
    plain: bool
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def writable(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, or the view of it that ``copy_`` can write to and read from."""
        return tensor if self.plain else tensor.as_strided(self.size, self.stride)


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return how the elements of a strided tensor lie in memory.

    ::

        x                              plain
        x.expand(4, -1)                not plain: copied as one row
        x.as_strided((5, 3), (1, 1))   not plain: copied as the 7 elements it spans
    """
    size, stride = tuple(tensor.size()), tuple(tensor.stride())
    if tensor.numel() == 0:
        return Layout(0, True, size, stride)
    span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if not _overlaps(size, stride):
        return Layout(span, True, size, stride)
    once = tuple(1 if step == 0 else n for n, step in zip(size, stride, strict=True))
    if not _overlaps(once, stride):
        return Layout(span, False, once, stride)
    return Layout(span, False, (span,), (1,))


def _overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Tell whether two indices may mean one element. Errs to yes for interleaved windows."""
    reach = 0
    for step, n in sorted((step, n) for n, step in zip(size, stride, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False


def empty_like_strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return uninitialized memory with a tensor's sizes, strides, dtype, device and lazy bits."""
    memory = torch.empty(layout_of(tensor).span, dtype=tensor.dtype, device=tensor.device)
    fresh = memory.as_strided(tuple(tensor.size()), tuple(tensor.stride()))
    return _compat.with_lazy_bits(fresh, like=tensor)


def tensor_in(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a storage that has another's offset, sizes, strides, dtype and lazy bits."""
    bare = torch.empty(0, dtype=like.dtype, device=like.device)
    # Under no_grad as everything here: the tensors of a recording have no history.
    bare.set_(storage, like.storage_offset(), like.size(), like.stride())
    return _compat.with_lazy_bits(bare, like=like)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a storage as a tensor of bytes."""
    memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
    memory.set_(storage, 0, (storage.nbytes(),), (1,))
    return memory
