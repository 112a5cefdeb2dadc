"""The XLA device, as far as this package uses one: a seam that tests fill without torch_xla."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

__all__ = ["CannotTrace", "Device", "Executable"]

Executable = Callable[[list[torch.Tensor]], list[torch.Tensor]]
"""Runs what was compiled: from all inputs to all results, both on the device."""


class CannotTrace(Exception):
    """A function does something that a trace of its operations does not hold; says what."""


class Device(Protocol):
    """Where graphs are run.

    Attributes:
        torch_device: What tensors on it have as their ``device``.
        lock: Held by whoever notes operations, compiles or sets the random state.
    """

    torch_device: torch.device
    lock: contextlib.AbstractContextManager[Any]

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is there; of a fake tensor, whether that is what it promises."""

    def upload(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return copies on the device, each contiguous and in memory of its own."""

    def download(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return contiguous copies on the CPU."""

    def lazily(self) -> contextlib.AbstractContextManager[None]:
        """Enter a context in which operations on the device are noted, not run."""

    def run_pending(self) -> None:
        """Run all operations that were noted, as one computation."""

    def compile(
        self, function: Callable[[list[torch.Tensor]], list[torch.Tensor]], stand_ins: list[torch.Tensor]
    ) -> Executable:
        """Trace a function once and compile what it does.

        Args:
            function: From tensors on the device to tensors on the device. Called here and never again.
            stand_ins: Inputs to trace with, of which nobody else knows. Only shapes and dtypes matter.

        Raises:
            CannotTrace: the function ran an operation on the CPU, or asked for a value.
        """

    def random_state(self) -> int:
        """Return what the device's random numbers go on from."""

    def set_random_state(self, state: int) -> None:
        """Let the random numbers go on from a state, or start from a seed."""

    def num_compilations(self) -> int:
        """Return how many computations the device has compiled in this process."""
