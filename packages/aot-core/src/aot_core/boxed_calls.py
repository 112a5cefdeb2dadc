"""The boxed calling convention: one list of inputs, which the callee may empty to free them early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot_core.errors import InvalidCompilerResultError
from aot_core.protocol import BoxedCallable

__all__ = ["boxed", "ensure_boxed"]


def boxed(function: Callable[[list[Any]], Any]) -> BoxedCallable:
    """Mark a function of one list as boxed, and return it."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function  # type: ignore[return-value]


def ensure_boxed(compiled: Any, *, subject: str) -> BoxedCallable:
    """Return what a compiler made as a `BoxedCallable`.

    Args:
        compiled: A boxed callable, or one that takes the inputs one by one.
        subject: Who made it, for the message.

    Raises:
        InvalidCompilerResultError: it is None or can't be called.
    """
    if not callable(compiled):
        raise InvalidCompilerResultError(
            f"{subject} returned {compiled!r}, expected a callable: one that takes a list of inputs and is "
            f"marked `_boxed_call = True`, or one that takes the inputs one by one."
        )
    if getattr(compiled, "_boxed_call", False):
        return compiled  # type: ignore[no-any-return]

    def call_unboxed(args: list[Any]) -> Any:
        inputs = tuple(args)
        args.clear()
        return compiled(*inputs)

    return boxed(call_unboxed)
