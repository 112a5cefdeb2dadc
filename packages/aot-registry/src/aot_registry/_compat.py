"""All that this package knows of torch's private parts: its registry, Dynamo's counters and limits.

torch keeps two dictionaries in ``torch._dynamo.backends.registry``, the same from 2.9 to 2.15: ``_BACKENDS``
(name → entry point, or None once loaded) and ``_COMPILER_FNS`` (name → backend). ``torch.compile`` looks a
name up when it is called, in the second first, which is why what is put there wins over any entry point.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from aot_registry.errors import InvalidBackendError, UnsupportedTorchError

__all__ = [
    "LoadedRegistry",
    "State",
    "compiled_graph_count",
    "loaded_registry",
    "names_of_torch",
    "recompile_limit_raised_for",
]

_DECORATORS = ("register_backend", "register_debug_backend", "register_experimental_backend")
_REGISTERING_FILES = ("_dynamo/backends/*.py", "_dynamo/repro/*.py")


def names_of_torch() -> frozenset[str]:
    """Return the backend names that the installed torch registers itself, without importing it.

    They are read from the source files that register them: importing ``torch._dynamo`` to ask costs seconds,
    and what a running process has registered may have been put there by anyone. Empty if there is no torch,
    or none with its sources.
    """
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return frozenset()
    names: set[str] = set()
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for pattern in _REGISTERING_FILES:
            for path in sorted(Path(root).glob(pattern)):
                names.update(_registered_in(path))
    return frozenset(names)


def _registered_in(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                if _called_name(decorator) in _DECORATORS:
                    names.add(_name_argument(decorator) or node.name)
        elif isinstance(node, ast.Call) and _called_name(node) in _DECORATORS:
            name = _name_argument(node)
            if name is not None:
                names.add(name)
    return names


def _called_name(node: ast.expr) -> str | None:
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else None


def _name_argument(node: ast.expr) -> str | None:
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


@dataclasses.dataclass(frozen=True)
class State:
    """What torch knows of one name: an item of each of its dictionaries, or none."""

    entry_point: dict[str, Any]
    backend: dict[str, Any]


class LoadedRegistry:
    """torch's registry, with torch's own backends in it. Made by `loaded_registry`."""

    def __init__(self, entry_points: MutableMapping[str, Any], backends: MutableMapping[str, Any]) -> None:
        self._entry_points = entry_points
        self._backends = backends

    def get(self, name: str) -> Callable[..., Any] | None:
        """Return the backend that torch holds under a name; None if it has none, or has not loaded it."""
        return self._backends.get(name)

    def put(self, name: str, backend: Callable[..., Any], tags: tuple[str, ...] | None = None) -> None:
        """Make torch answer a name with this backend, whatever it held before.

        Args:
            name: What the user passes to ``torch.compile``.
            backend: The backend.
            tags: Its tags; None leaves those that it has.

        Raises:
            InvalidBackendError: the backend refuses the attribute ``_tags``.
        """
        # torch's listing reads this attribute of every backend it holds, and fails for all if one lacks it.
        if tags is not None or not hasattr(backend, "_tags"):
            try:
                backend._tags = tags or ()  # type: ignore[attr-defined]
            except AttributeError as error:
                raise InvalidBackendError(
                    f"Backend {name!r} is a {type(backend).__name__}, which refuses the attribute _tags that "
                    "torch keeps on backends. Wrap it in a function."
                ) from error
        self._entry_points.setdefault(name, None)
        self._backends[name] = backend

    def state(self, name: str) -> State:
        """Return all that torch knows of a name, for `restore`."""
        return State(
            {name: self._entry_points[name]} if name in self._entry_points else {},
            {name: self._backends[name]} if name in self._backends else {},
        )

    def restore(self, name: str, state: State) -> None:
        """Make torch know of a name what it knew when `state` was called."""
        self._entry_points.pop(name, None)
        self._backends.pop(name, None)
        self._entry_points.update(state.entry_point)
        self._backends.update(state.backend)


def loaded_registry() -> LoadedRegistry:
    """Import torch's registry and have it register its own backends, which it otherwise does at first need.

    Raises:
        UnsupportedTorchError: torch is not installed, or keeps its registry otherwise.
    """
    try:
        module = importlib.import_module("torch._dynamo.backends.registry")
    except Exception as error:
        raise UnsupportedTorchError(
            f"torch's registry of backends can't be imported ({type(error).__name__}: {error}). Install "
            "torch>=2.10,<2.16; if that is what you have, `aot doctor` may tell what is wrong with it."
        ) from error
    entry_points = getattr(module, "_BACKENDS", None)
    backends = getattr(module, "_COMPILER_FNS", None)
    load = getattr(module, "_lazy_import", None)
    if not isinstance(entry_points, dict) or not isinstance(backends, dict) or not callable(load):
        version = getattr(importlib.import_module("torch"), "__version__", "unknown")
        raise UnsupportedTorchError(
            f"torch {version} keeps its registry of backends otherwise than torch 2.9 to 2.15. Pass backend "
            "objects instead of names, torch.compile(model, backend=aot_registry.get_backend(...)), or "
            "install torch>=2.10,<2.16."
        )
    load()
    return LoadedRegistry(entry_points, backends)


def compiled_graph_count() -> int:
    """Return how many graphs Dynamo has handed to backends since its counters were cleared."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    return int(counters["stats"]["unique_graphs"])


@contextlib.contextmanager
def recompile_limit_raised_for(backends: int) -> Iterator[None]:
    """Let one code object be compiled as often for each of several backends as otherwise for one alone.

    Past its limit Dynamo runs a frame uncompiled, with no more than a warning.
    """
    config = importlib.import_module("torch._dynamo.config")
    limits = ("recompile_limit", "accumulated_recompile_limit")
    with config.patch({limit: getattr(config, limit) * backends for limit in limits}):
        yield
