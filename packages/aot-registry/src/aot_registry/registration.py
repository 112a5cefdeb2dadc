"""Backends of a script or notebook, which has no entry points: registered by name in this process.

What is registered here is known to torch too, so ``torch.compile(backend="name")`` finds it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, overload

from aot_registry import _compat
from aot_registry.discovery import declarations
from aot_registry.errors import DuplicateBackendError, InvalidBackendError, UnknownBackendError, suggest

__all__ = ["Registered", "register_backend", "register_debug_backend", "registered", "unregister_backend"]

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.RLock()
_registered: dict[str, Registered] = {}


@dataclasses.dataclass(frozen=True)
class Registered:
    """One backend that this process registered.

    Args:
        backend: The backend.
        tags: What it is for.
        before: What torch knew of the name before.
    """

    backend: Callable[..., Any]
    tags: tuple[str, ...]
    before: _compat.State


def registered() -> Mapping[str, Registered]:
    """Return what is registered now, by name."""
    with _lock:
        return dict(_registered)


@overload
def register_backend(fn: F, *, name: str | None = None, tags: Collection[str] = ()) -> F: ...
@overload
def register_backend(*, name: str | None = None, tags: Collection[str] = ()) -> Callable[[F], F]: ...
def register_backend(
    fn: F | None = None, *, name: str | None = None, tags: Collection[str] = ()
) -> F | Callable[[F], F]:
    """Give a backend a name, here and in torch. Imports torch.

    A call, ``register_backend(fn, name="mine")``, and a decorator, with arguments or without. Either way the
    function itself comes back. `unregister_backend` undoes it. A package declares entry points instead.

    Args:
        fn: Called with a ``GraphModule`` and its example inputs, returns a callable.
        name: What ``torch.compile(backend=...)`` shall know it by; by default ``fn.__name__``.
        tags: What it is for; ``("debug",)`` keeps it out of default listings.

    Raises:
        DuplicateBackendError: a distribution, torch or an earlier registration has the name.
        InvalidBackendError: ``fn`` can't be called, has no name, or refuses the attribute ``_tags``.
    """
    if fn is None:
        return lambda decorated: register_backend(decorated, name=name, tags=tags)
    if isinstance(tags, str):
        raise InvalidBackendError(
            f"tags must be a collection of strings, got the string {tags!r}; write ({tags!r},)."
        )
    if not callable(fn):
        raise InvalidBackendError(
            f"A backend is called with a graph and its inputs; got {type(fn).__name__}, which can't be "
            "called."
        )
    name = name or getattr(fn, "__name__", None)
    if not name:
        raise InvalidBackendError(f"A {type(fn).__name__} has no __name__. Pass name= to register_backend.")

    with _lock:
        registry = _compat.loaded_registry()
        _check_free(name, registry)
        before = registry.state(name)
        registry.put(name, fn, tuple(tags))
        _registered[name] = Registered(fn, tuple(tags), before)
    return fn


@overload
def register_debug_backend(fn: F, *, name: str | None = None, tags: Collection[str] = ()) -> F: ...
@overload
def register_debug_backend(*, name: str | None = None, tags: Collection[str] = ()) -> Callable[[F], F]: ...
def register_debug_backend(
    fn: F | None = None, *, name: str | None = None, tags: Collection[str] = ()
) -> F | Callable[[F], F]:
    """Register a backend tagged ``"debug"``, which default listings leave out. See `register_backend`."""
    if fn is None:
        return register_backend(name=name, tags=("debug", *tags))
    return register_backend(fn, name=name, tags=("debug", *tags))


def unregister_backend(name: str) -> None:
    """Undo `register_backend`, here and in torch. What has been compiled goes on working.

    Raises:
        UnknownBackendError: nothing is registered under this name.
    """
    with _lock:
        if name not in _registered:
            names = sorted(_registered)
            listing = f"Registered are: {', '.join(names)}." if names else "Nothing is registered."
            raise UnknownBackendError(f"No backend {name!r} is registered.{suggest(name, names)} {listing}")
        entry = _registered.pop(name)
        registry = _compat.loaded_registry()
        if registry.get(name) is entry.backend:
            registry.restore(name, entry.before)


def _check_free(name: str, registry: _compat.LoadedRegistry) -> None:
    if name in _registered:
        raise DuplicateBackendError(
            f"Backend {name!r} is registered already. Call unregister_backend({name!r}) first, or choose "
            "another name."
        )
    declaration = declarations().get(name)
    if declaration is not None:
        raise DuplicateBackendError(
            f"Backend {name!r} is declared by {declaration.owner} (entry point '{declaration.entry_point}'). "
            "Choose another name."
        )
    if registry.get(name) is not None:
        raise DuplicateBackendError(
            f"torch has a backend {name!r} already, its own or one registered with it. Choose another name."
        )
