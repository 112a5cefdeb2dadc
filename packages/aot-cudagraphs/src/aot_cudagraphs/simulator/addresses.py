"""Tensors made from addresses, which is all that a captured kernel knows of its arguments."""

from __future__ import annotations

import ctypes

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.errors import FreedMemoryError
from aot_cudagraphs.simulator.pool import segment_at

__all__ = ["OutsideMemory", "copied", "copy_bytes", "same_view", "tensor_at"]


def tensor_at(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that reads and writes where ``tensor`` does now, and holds nothing alive."""
    storage = tensor.untyped_storage()
    return same_view(tensor, _storage_at(storage.data_ptr(), storage.nbytes()))


def same_view(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor with the dtype, sizes, strides and offset of ``tensor`` on another storage."""
    with torch.no_grad():
        view = torch.empty(0, dtype=tensor.dtype, device="cpu")
        view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
        return _compat.with_bits(view, conj=tensor.is_conj(), neg=tensor.is_neg())


def _storage_at(address: int, nbytes: int) -> torch.UntypedStorage:
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8, device="cpu").untyped_storage()
    segment = segment_at(address)
    if segment is not None:
        # Stays readable when the pool has given the segment up: what is found there then is poison.
        return segment.storage(address, nbytes, owned=False)
    array = (ctypes.c_ubyte * nbytes).from_address(address)
    return torch.frombuffer(array, dtype=torch.uint8).untyped_storage()


def copy_bytes(source: torch.UntypedStorage, address: int) -> None:
    """Copy all of a storage to an address."""
    ctypes.memmove(address, source.data_ptr(), source.nbytes())


def copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a storage with the same contents in memory of its own, which an operator may make larger."""
    contents: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
    return contents


class OutsideMemory:
    """The memory outside all pools that a recording reads or writes.

    A device would go on using the address when the memory is gone. Here it is kept, so that nothing crashes, and the
    next replay says so.
    """

    def __init__(self) -> None:
        self._storages: dict[int, tuple[torch.UntypedStorage, int, int]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's memory is used."""
        storage = tensor.untyped_storage()
        if storage.nbytes() and segment_at(storage.data_ptr()) is None:
            self._storages.setdefault(
                _compat.storage_key(storage), (storage, storage.data_ptr(), storage.nbytes())
            )

    def check(self) -> None:
        """Check that all of it still exists.

        Raises:
            FreedMemoryError: nobody else holds a storage, or it was resized.
        """
        for storage, address, nbytes in self._storages.values():
            freed = _compat.storage_uses(storage) < 2
            if freed or storage.data_ptr() != address:
                what = "has been freed" if freed else "was given another address by a resize"
                raise FreedMemoryError(
                    f"A replay uses {nbytes} bytes at {address:#x}, outside its pool, and that memory "
                    f"{what}. Expected every tensor that the captured function reads or writes to live as long as the "
                    "recording. Keep a reference to the inputs that it was recorded with, and copy new values into "
                    "them."
                )
