"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from aot_core.errors import AotError

__all__ = [
    "BrokenBackendError",
    "DuplicateBackendError",
    "InvalidBackendError",
    "OverrideConflictError",
    "UnknownBackendError",
    "UnknownOverrideError",
    "UnsupportedTorchError",
]


class UnknownBackendError(AotError, KeyError):
    """No installed distribution declares a backend of this name, and nobody registered one."""

    # KeyError shows the repr of its argument, which would put the sentence in quotes.
    __str__ = Exception.__str__


class BrokenBackendError(AotError, ImportError):
    """A backend is declared but can't be loaded. Names the entry point, its distribution and a remedy."""


class DuplicateBackendError(AotError, ValueError):
    """A name that a backend should be registered under is taken."""


class InvalidBackendError(AotError, TypeError):
    """What should be registered is not something that torch can use as a backend."""


class UnknownOverrideError(AotError, ValueError):
    """`aot_registry.activate` was asked for a name that no installed backend declares as its override."""


class OverrideConflictError(AotError, ValueError):
    """Two backends want to stand under the same name of torch's."""


class UnsupportedTorchError(AotError, RuntimeError):
    """The installed torch keeps its registry of backends in a way that this package does not know."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the names closest to a misspelt one, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
