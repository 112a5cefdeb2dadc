"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

from aot_core import AotError

__all__ = [
    "InferenceOnlyError",
    "MismatchedTorchXlaError",
    "MissingTorchXlaError",
    "UnsupportedDtypeError",
    "UnusableXlaError",
]


class MissingTorchXlaError(AotError, ImportError):
    """torch_xla is not installed."""


class MismatchedTorchXlaError(AotError, ImportError):
    """The installed torch_xla was built for another torch than the installed one."""


class UnusableXlaError(AotError, RuntimeError):
    """torch_xla is installed and fits, but can't be imported, lacks an interface, or opens no device."""


class UnsupportedDtypeError(AotError, TypeError):
    """A graph holds a dtype that XLA silently takes for another."""


class InferenceOnlyError(AotError, RuntimeError):
    """``.backward()`` was called through a backend that compiles for inference only."""
