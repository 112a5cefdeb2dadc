"""What stands around a compiled graph when it is called."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from aot_core import _compat
from aot_core.boxed_calls import boxed
from aot_core.protocol import BoxedCallable

__all__ = ["ContextFactory", "RuntimeContext", "without_autocast"]

ContextFactory = Callable[[], contextlib.AbstractContextManager[Any]]


class RuntimeContext:
    """A backend's context around each forward and each backward, entered once however many ask for it.

    Dynamo enters a backend's ``backend_ctx_ctor`` around a whole frame, and the wrapper enters the context
    around each graph; a context such as a fuser switch or a CUDA stream should see one of the two.
    """

    def __init__(self, factory: ContextFactory) -> None:
        self.factory = factory
        self._entered = threading.local()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Enter the context, unless this thread is inside it already. Left on exceptions too."""
        if getattr(self._entered, "now", False):
            yield
            return
        with self.factory():
            self._entered.now = True
            try:
                yield
            finally:
                self._entered.now = False

    def around(self, compiled: BoxedCallable) -> BoxedCallable:
        """Return ``compiled`` with the context around each call."""

        def call_in_context(args: list[Any]) -> Any:
            with self():
                return compiled(args)

        return boxed(call_in_context)


def without_autocast(compiled: BoxedCallable) -> BoxedCallable:
    """Return ``compiled`` as it must run under autocast: the graph holds its casts already."""

    def call_without_autocast(args: list[Any]) -> Any:
        if not _compat.any_autocast_enabled():
            return compiled(args)
        with _compat.disabled_autocast():
            return compiled(args)

    return boxed(call_without_autocast)
