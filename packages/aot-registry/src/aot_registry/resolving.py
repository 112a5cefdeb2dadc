"""From what a user calls a backend to the backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import aot_registry
from aot_registry import _compat
from aot_registry.bench.contenders import check_backend_names
from aot_registry.bisecting.errors import InvalidSubjectError

__all__ = ["resolve_backend"]


def resolve_backend(backend: str | Callable[..., Any]) -> tuple[str, Callable[..., Any]]:
    """Return what a backend is called, and the backend.

    Args:
        backend: A backend, its name as for ``torch.compile``, or ``"module:attribute"``.

    Raises:
        UnknownBackendError: nobody has a backend of this name.
        InvalidSubjectError: it can't be imported or called.
    """
    if isinstance(backend, str) and ":" in backend:
        return backend, _imported(backend)
    if isinstance(backend, str):
        check_backend_names([backend])
        ours = backend in aot_registry.list_backends(exclude_tags=())
        return backend, aot_registry.get_backend(backend) if ours else _compat.find_backend(backend)
    if not callable(backend):
        raise InvalidSubjectError(
            f"A backend is a name or something that is called with a graph and its inputs, got {backend!r}."
        )
    return str(getattr(backend, "__name__", type(backend).__name__)), backend


def _imported(reference: str) -> Callable[..., Any]:
    module, _, attribute = reference.partition(":")
    try:
        backend = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise InvalidSubjectError(
            f"Backend {reference!r} can't be imported: {type(error).__name__}: {error}. Expected module:attribute."
        ) from error
    if not callable(backend):
        raise InvalidSubjectError(f"{reference} is a {type(backend).__name__}, which can't be called.")
    return backend  # type: ignore[no-any-return]
