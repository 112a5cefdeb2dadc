"""What can be wrong with what a user asks ``aot explain`` for, each with a page in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = ["ExplainedCallError", "UnexplainableBackendError"]


class UnexplainableBackendError(AotError, TypeError):
    """The backend was not made by `aot_core.aot_autograd`, so that its stages can't be looked at."""


class ExplainedCallError(AotError, RuntimeError):
    """The model raised when it was called. The cause is chained."""
