"""A device without torch_xla: tensors on the CPU that know they are elsewhere, and a log of what was asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aot_xla.device import Executable


class Noting(TorchDispatchMode):
    """Takes down what operations make: it is on the device."""

    supports_higher_order_operators = True

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                self.device.keep(leaf)
        return result


class FakeDevice:
    """See `aot_xla.device.Device`.

    Attributes:
        uploads: The sizes of the tensors of each upload.
        compilations: How often it has compiled.
        seeds: All random states that were set.
    """

    FIRST_STATE = 101

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self.lock = threading.RLock()
        self.uploads: list[list[torch.Size]] = []
        self.runs = 0
        self.compilations = 0
        self.seeds: list[int] = []
        self.misplaced_dtype: torch.dtype | None = None
        self._memory: dict[int, torch.UntypedStorage] = {}
        self._state = self.FIRST_STATE
        self._borrowed = torch.get_rng_state()

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._memory

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        # The storage is held, so that its address tells no other.
        storage = tensor.untyped_storage()
        self._memory[storage._cdata] = storage
        return tensor

    def upload(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if tensors:
            self.uploads.append([tensor.size() for tensor in tensors])
        copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        return [
            self.keep(copy.to(torch.int16) if copy.dtype == self.misplaced_dtype else copy) for copy in copies
        ]

    def download(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        contiguous = torch.contiguous_format
        return [tensor.clone(memory_format=contiguous) for tensor in tensors]

    @contextlib.contextmanager
    def lazily(self) -> Iterator[None]:
        with Noting(self):
            yield

    def run_pending(self) -> None:
        self.runs += 1

    def compile(
        self, function: Callable[[list[torch.Tensor]], list[torch.Tensor]], stand_ins: list[torch.Tensor]
    ) -> Executable:
        # A trace: what the stand-ins give is thrown away. Called with other inputs, `function` does the same.
        self.compilations += 1

        def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            with self.lazily():
                return function(inputs)

        before = torch.get_rng_state()
        run(stand_ins)
        torch.set_rng_state(before)
        return run

    def random_state(self) -> int:
        return self._state

    def set_random_state(self, state: int) -> None:
        # Its random numbers are torch's: borrowed for as long as the state is not its own.
        self.seeds.append(state)
        if state != self.FIRST_STATE:
            self._borrowed = torch.get_rng_state()
            torch.manual_seed(state)
        else:
            torch.set_rng_state(self._borrowed)
        self._state = state

    def num_compilations(self) -> int:
        return self.compilations
