"""What a check compiles with: the backend under test, or plain eager when the expected values are made."""

from __future__ import annotations

import dataclasses
import unittest
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

__all__ = ["Backend", "Subject"]

CPU = torch.device("cpu")

Backend = str | Callable[..., Any]
"""A name that ``torch.compile`` knows, or the backend itself."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """The one argument of a check.

    A check is run three times, with the same seed: by the backend, by eager, and by eager in float64. It
    takes its modules and data from the subject, so that the three start from the same numbers: values are
    drawn in float32, rounded to ``dtype``, and only then widened for the float64 run.

    Args:
        backend: What ``compile`` passes to ``torch.compile``. None is eager: ``compile`` changes nothing.
        options: ``torch.compile(options=...)``.
        device: Where modules and data live.
        dtype: The floating or complex type that the check is about.
        wide: Compute in float64 (complex128) instead of ``dtype``.
    """

    backend: Backend | None
    options: Mapping[str, Any] | None = None
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    wide: bool = False

    def compile(
        self, model: Callable[..., Any], *, dynamic: bool | None = None, fullgraph: bool = False
    ) -> Any:
        """Return the function or module as the backend compiles it."""
        if self.backend is None:
            return model
        options = dict(self.options) if self.options else None
        return torch.compile(
            model, backend=self.backend, options=options, dynamic=dynamic, fullgraph=fullgraph
        )

    def place(self, value: nn.Module | torch.Tensor) -> Any:
        """Return a module or tensor on this device, its floating values rounded to this dtype."""
        rounded = _to(value, self.device, self.dtype)
        return _to(rounded, self.device, _widened(self.dtype)) if self.wide else rounded

    def randn(self, *shape: int, grad: bool = False) -> torch.Tensor:
        """Return normally distributed values; with ``grad``, a leaf that requires a gradient."""
        draw = torch.complex64 if self.dtype.is_complex else torch.float32
        value: torch.Tensor = self.place(torch.randn(shape, dtype=draw))
        return value.requires_grad_(grad)

    def arange(self, *shape: int) -> torch.Tensor:
        """Return 0, 1, 2, … in the given shape: values that every dtype holds exactly."""
        count = torch.Size(shape).numel()
        value: torch.Tensor = self.place(torch.arange(count, dtype=torch.float32).reshape(shape))
        return value

    def skip(self, reason: str) -> NoReturn:
        """Leave the check undecided: it says nothing about this backend here."""
        raise unittest.SkipTest(reason)


def _widened(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _to(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, nn.Module):
        return value.to(device=device, dtype=dtype)
    floating = value.dtype.is_floating_point or value.dtype.is_complex
    return value.to(device=device, dtype=dtype) if floating else value.to(device=device)
