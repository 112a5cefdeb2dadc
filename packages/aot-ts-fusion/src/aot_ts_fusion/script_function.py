"""One TorchScript function as a step of a program: how it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from aot_ts_fusion import _compat

__all__ = ["ScriptFunction"]


class ScriptFunction:
    """Calls a function that takes a list of tensors, then numbers, and that empties the list.

    Args:
        graph: The TorchScript graph.
        name: What to call it.
        literals: Numbers that it gets besides, in each call.
        takes_tensors: Whether there is a list.
        fuser: TorchScript's fuser, by its name. None runs the graph as it is built.

    Attributes:
        graph: As given, for looking at.
    """

    def __init__(
        self,
        graph: _compat.IRGraph,
        *,
        name: str,
        literals: Sequence[Any],
        takes_tensors: bool,
        fuser: str | None,
    ) -> None:
        self.graph = graph
        self._function = _compat.create_function(name, graph)
        self._literals = tuple(literals)
        self._takes_tensors = takes_tensors
        self._fuser = fuser
        # Making a list is slow, and one is in use only during a call. Calls in other threads find none, and make one.
        self._lists: list[Any] = []

    def __call__(self, tensors: list[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Run it. ``tensors`` is emptied before, so that the function is the last to hold them."""
        if not self._takes_tensors:
            return self._run(*numbers, *self._literals)
        try:
            held = self._lists.pop()
        except IndexError:
            held = _compat.empty_list_of_tensors()
        try:
            held.extend(tensors)
            tensors.clear()
            return self._run(held, *numbers, *self._literals)
        finally:
            held.clear()
            self._lists.append(held)

    def _run(self, *arguments: Any) -> tuple[Any, ...]:
        run: Callable[..., Any] = _compat.run_as_built
        context: contextlib.AbstractContextManager[None] | None = None
        if self._fuser is not None:
            run, context = _compat.run_optimized, _compat.fuser(self._fuser)
        if context is None:
            result: tuple[Any, ...] = run(self._function, *arguments)
            return result
        with context:
            result = run(self._function, *arguments)
        return result
