"""Copies on XLA of tensors that live elsewhere, moved once and again only when they have changed.

::

    tensor ──(known here, alive, unchanged?)──yes──> the copy that was made before
      │ no
      ▼
    one upload of all that is needed ──> new copies, remembered for as long as the tensor lives and a graph's
                                         latest call used them

Who changes a tensor does not tell us. Autograd's version counter sees operations in place, optimizers' among them;
it does not see writes through ``.data`` or NumPy, which only the contents show.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from aot_xla.device import Device

__all__ = ["CopiesOnDevice", "Slots"]

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Copy:
    """A tensor's copy on the device, and what the tensor was like when it was made."""

    def __init__(self, tensor: torch.Tensor, on_device: torch.Tensor, *, keep_contents: bool) -> None:
        self.on_device: torch.Tensor | None = on_device
        self._seen = _look(tensor)
        self._contents = tensor.detach().clone() if keep_contents else None
        # Not a bound method: a copy that refers to itself would wait for the garbage collector to be freed.
        this = weakref.ref(self)
        self._owner = weakref.ref(tensor, lambda _: _release(this()))

    def stands_for(self, tensor: torch.Tensor, *, compare_contents: bool) -> bool:
        """Tell whether this is a copy of that tensor as it is now."""
        if self._owner() is not tensor or self._seen != _look(tensor):
            return False
        if not compare_contents:
            return True
        return self._contents is not None and _same_bits(self._contents, tensor.detach())

    def release(self) -> None:
        """Free the memory of a copy whose tensor is gone."""
        self.on_device = self._contents = None


def _release(copy: _Copy | None) -> None:
    if copy is not None:
        copy.release()


class Slots:
    """The copies that the latest call of one graph used, by input. Nothing else keeps copies alive.

    So memory on the device is bounded by what the graphs' latest calls needed: parameters stay, and a batch goes
    when the next one comes.
    """

    def __init__(self) -> None:
        self.copies: list[_Copy | None] = []


class CopiesOnDevice:
    """All copies that are alive on one device, shared by all graphs.

    Args:
        device: Where they are.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: weakref.WeakValueDictionary[int, _Copy] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def of(
        self, tensors: Sequence[torch.Tensor], slots: Slots, *, compare_contents: bool
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return copies of tensors.

        Args:
            tensors: On another device.
            slots: Of the graph that will compute with the copies.
            compare_contents: Trust a version counter that has not moved only if the contents are the same.

        Returns:
            The copies, in order; and those tensors that had to be moved for it.
        """
        # A copy outlives the call, and is used in other modes than it was made in.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            found = [self._find(tensor, compare_contents) for tensor in tensors]
            missing = {id(t): t for t, copy in zip(tensors, found, strict=True) if copy is None}
            uploaded = self._device.upload([_plain(tensor) for tensor in missing.values()])
            made = {
                id(tensor): _Copy(tensor, on_device, keep_contents=compare_contents)
                for tensor, on_device in zip(missing.values(), uploaded, strict=True)
            }
            copies = [copy or made[id(t)] for t, copy in zip(tensors, found, strict=True)]
            self._known.update(made)
            slots.copies = list(copies)
            # Their owners are alive: the caller holds them.
            on_device = [copy.on_device for copy in copies]
        return [value for value in on_device if value is not None], list(missing.values())

    def _find(self, tensor: torch.Tensor, compare_contents: bool) -> _Copy | None:
        copy = self._known.get(id(tensor))
        known = copy is not None and copy.stands_for(tensor, compare_contents=compare_contents)
        return copy if known else None


def _look(tensor: torch.Tensor) -> Any:
    """Return what changes when a tensor is written in sight of autograd, or made to look elsewhere.

    A tensor made under ``inference_mode`` has no version: it is taken to be another one each time.
    """
    version = object() if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr(), tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg()


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare as integers: a NaN is the same as itself, and 0.0 is not -0.0."""
    if one.is_complex():
        one, other = torch.view_as_real(_plain(one)), torch.view_as_real(_plain(other))
    kind = _INTEGER_OF_SIZE[one.element_size()]
    return torch.equal(one.view(kind), other.view(kind))
