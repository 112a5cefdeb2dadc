"""Put our backends under names that torch owns, and take them away again.

torch ignores an entry point with a name of its own, without a word. A backend that is meant as a better
version of one of torch's therefore has a name of its own, and says in `BackendInfo.overrides` which of
torch's it can replace::

    with aot_registry.activate():                      # aot_eager → aot_core_eager, ...
        compiled = torch.compile(model, backend="aot_eager")

A name is looked up when ``torch.compile`` is called, not when the model runs: what was compiled inside the
block keeps its backend afterwards.

Activations of one name form a stack, and each removes its own layer, wherever that lies. So they may be
undone in any order, and torch's backend comes back with the last.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, TracebackType
from typing import Any

from aot_registry import _compat
from aot_registry.backends import load_declaration
from aot_registry.discovery import Declaration, declarations
from aot_registry.errors import BrokenBackendError, OverrideConflictError, UnknownOverrideError, suggest
from aot_registry.loading import LoadError, load_info

__all__ = ["Activation", "activate"]

log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Stack:
    """What has been put under one name: torch's own at the bottom, the one in force on top."""

    original: _compat.State
    layers: list[tuple[Activation, Callable[..., Any]]] = dataclasses.field(default_factory=list)


_lock = threading.RLock()
_stacks: dict[str, _Stack] = {}


class Activation:
    """Handle of one `activate` call: a context manager that undoes it on exit, or call `undo` yourself."""

    def __init__(self, overridden: Mapping[str, str]) -> None:
        self._overridden = MappingProxyType(dict(overridden))

    @property
    def overridden(self) -> Mapping[str, str]:
        """Names of torch's, and the name of the backend that stands under each."""
        return self._overridden

    def undo(self) -> None:
        """Take the backends away again. Calling it twice is the same as once."""
        with _lock:
            for name in self._overridden:
                stack = _stacks.get(name)
                if stack is None or all(owner is not self for owner, _ in stack.layers):
                    continue
                registry = _compat.loaded_registry()
                # Someone else may have put theirs on top; then torch's entry is no longer ours to change.
                ours = registry.get(name) is stack.layers[-1][1]
                stack.layers = [layer for layer in stack.layers if layer[0] is not self]
                if not ours:
                    log.warning(
                        "backend %s was replaced by someone else since activate(); left as it is", name
                    )
                elif stack.layers:
                    registry.put(name, stack.layers[-1][1])
                else:
                    registry.restore(name, stack.original)
                if not stack.layers:
                    del _stacks[name]

    def __enter__(self) -> Activation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name} → {backend}" for name, backend in self._overridden.items())
        return f"Activation({pairs})"


def activate(override: Collection[str] | None = None) -> Activation:
    """Put backends of installed packages under names that torch owns.

    Args:
        override: Names of torch's, such as ``("aot_eager",)``. By default all that an installed backend
            declares as `BackendInfo.overrides`; of those, a backend that can't be loaded is left out with a
            logged warning.

    Returns:
        A handle with ``undo()``, also a context manager.

    Raises:
        UnknownOverrideError: no installed backend declares one of the names.
        OverrideConflictError: two do.
        BrokenBackendError: a backend asked for by name can't be loaded. Nothing has been changed then.
        UnsupportedTorchError: torch keeps its registry otherwise than known.
    """
    if isinstance(override, str):
        raise TypeError(
            f"override must be a collection of names, got the string {override!r}; write ({override!r},)"
        )
    declared = _declared_overrides()
    names = sorted(declared) if override is None else list(dict.fromkeys(override))
    for name in names:
        _check(name, declared)
    chosen: dict[str, tuple[str, Callable[..., Any]]] = {}
    for name in names:
        declaration = declared[name][0]
        try:
            chosen[name] = (declaration.name, load_declaration(declaration))
        except BrokenBackendError as error:
            if override is not None:
                raise
            log.warning("torch keeps its own backend %s: %s", name, error)
    return _install(chosen)


def _install(chosen: Mapping[str, tuple[str, Callable[..., Any]]]) -> Activation:
    activation = Activation({name: backend_name for name, (backend_name, _) in chosen.items()})
    if not chosen:
        return activation
    with _lock:
        registry = _compat.loaded_registry()
        for name, (_, backend) in chosen.items():
            original = registry.state(name)
            registry.put(name, backend)
            _stacks.setdefault(name, _Stack(original)).layers.append((activation, backend))
    return activation


def _declared_overrides() -> dict[str, list[Declaration]]:
    overrides: dict[str, list[Declaration]] = {}
    for declaration in declarations().values():
        try:
            info = load_info(declaration)
        except LoadError as error:
            log.debug("no override from %s: %s", declaration.name, error.problem.reason)
            continue
        if info is not None and info.overrides is not None:
            overrides.setdefault(info.overrides, []).append(declaration)
    return overrides


def _check(name: str, declared: Mapping[str, list[Declaration]]) -> None:
    if name == "inductor":
        raise UnknownOverrideError(
            "'inductor' can't be overridden: torch.compile reaches it without looking its name up. Pass "
            "backend=... instead."
        )
    if name not in declared:
        listing = f"Declared are: {', '.join(sorted(declared))}." if declared else "None declares any."
        raise UnknownOverrideError(
            f"No installed backend declares {name!r} as the name of torch's that it overrides."
            f"{suggest(name, declared)} {listing}"
        )
    rivals = declared[name]
    if len(rivals) > 1:
        raise OverrideConflictError(
            f"{' and '.join(f'{rival.name!r} of {rival.owner}' for rival in rivals)} both want to stand "
            f"under torch's name {name!r}. Uninstall one, or pass override= without {name!r}."
        )
