"""What can be wrong with what a user asks ``aot bisect`` for, each with a page in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = ["EagerFailureError", "InvalidSubjectError"]


class InvalidSubjectError(AotError, TypeError):
    """What should be bisected can't be called, can't be copied, or has no such batch."""


class EagerFailureError(AotError, RuntimeError):
    """The model fails without ``torch.compile``, so that there is nothing to compare with. The cause is chained."""
