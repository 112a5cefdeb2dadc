"""Which CPU tensors play memory of the host; all others play memory of the device."""

from __future__ import annotations

from typing import TypeVar

import torch

__all__ = ["as_host", "is_host"]

T = TypeVar("T", bound=torch.Tensor)


def as_host(tensor: T) -> T:
    """Let a CPU tensor, and all that share its storage, play host memory; return it.

    A capture refuses host tensors with dimensions, and freezes the value of one without.
    """
    # The storage's Python object lives as long as the storage does, and so does what is written on it.
    tensor.untyped_storage().plays_host_memory = True  # type: ignore[attr-defined]
    return tensor


def is_host(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor plays host memory."""
    if tensor.layout is not torch.strided:
        return False
    return getattr(tensor.untyped_storage(), "plays_host_memory", False)
