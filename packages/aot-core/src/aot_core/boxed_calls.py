"""The boxed calling convention: one list of inputs, which the callee may empty to free them early."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aot_core import _compat
from aot_core.errors import InvalidCompilerResultError
from aot_core.protocol import BoxedCallable

if TYPE_CHECKING:
    from torch import fx
    from torch.fx.graph import CodeGen

__all__ = ["boxed", "boxed_code", "boxed_code_generator", "ensure_boxed"]


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


def boxed_code_generator() -> CodeGen:
    """Return a code generator for ``fx.Graph.set_codegen``: its functions take one list, and empty it as they go."""
    generator: CodeGen = _compat.boxed_code_generator()
    return generator


def boxed_code(gm: fx.GraphModule) -> BoxedCallable:
    """Compile a graph to its own code: its operations run as they are, inputs freed after their last use.

    Args:
        gm: The graph. Its ``forward`` takes one list afterwards.
    """
    gm.graph.set_codegen(boxed_code_generator())
    gm.recompile()
    forward: Callable[[list[Any]], Any] = gm.forward

    def run(args: list[Any]) -> Any:
        return forward(args)

    return boxed(run)
