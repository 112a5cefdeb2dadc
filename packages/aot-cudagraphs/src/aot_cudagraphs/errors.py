"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aot_core.errors import AotError

if TYPE_CHECKING:
    from aot_cudagraphs.refusals import Refusal

__all__ = [
    "ArgumentCountError",
    "CaptureFailedError",
    "CaptureRefusedError",
    "FreedMemoryError",
    "ReleasedRecordingError",
    "ReplayMismatchError",
    "RequiresGradientError",
]

# --- capture and replay ------------------------------------------------------------------------------------


class CaptureRefusedError(AotError, RuntimeError):
    """A function did something that a CUDA graph can't hold. Names the operation, the reason and the line.

    Args:
        refusal: What was refused, and why.
        source: The user's source line, ``"model.py:41"``, where known.
    """

    def __init__(self, refusal: Refusal, source: str | None = None) -> None:
        where = f" ({source})" if source else ""
        super().__init__(
            f"{refusal.op}{where} can't be captured in a CUDA graph: {refusal.reason}. "
            f"Expected work that the device does alone. {refusal.remedy}"
        )
        self.refusal = refusal
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refusal, self.source)


class ReleasedRecordingError(AotError, RuntimeError):
    """A recording was to be replayed after it had been released."""


class FreedMemoryError(AotError, RuntimeError):
    """A replay would read or write memory outside the pool that nobody owns any more."""


class ReplayMismatchError(AotError, RuntimeError):
    """An operation made a result of other sizes at replay than when it was recorded."""


# --- captured graphs ---------------------------------------------------------------------------------------


class CaptureFailedError(AotError, RuntimeError):
    """A part of a graph can't be captured, and strictness was asked for. The cause is chained."""


class ArgumentCountError(AotError, TypeError):
    """A captured graph was called with another number of arguments than it takes."""


class RequiresGradientError(AotError, RuntimeError):
    """A captured graph, which records no gradients, was given a tensor that requires one."""
