"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = ["FusionResultError", "UnknownFusionError", "UnknownFuserError", "UnusableFuserError"]


class UnknownFuserError(AotError, ValueError):
    """``fuser=`` is not the name of a fuser of TorchScript's."""


class UnusableFuserError(AotError, RuntimeError):
    """nvFuser or NNC can't be used here, and strictness was asked for."""


class UnknownFusionError(AotError, LookupError):
    """A graph calls a compiled part that is not there any more."""


class FusionResultError(AotError, RuntimeError):
    """What a fuser made of a part of a graph returned another number of results than that part has."""
