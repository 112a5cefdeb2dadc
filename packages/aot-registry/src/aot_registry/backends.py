"""The backends by name: those that installed distributions declare, and those that this process registered.

Listing reads metadata and torch-free descriptions; only getting a backend imports it. One declaration that is
broken never hides another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from aot_core.protocol import Availability
from aot_registry import registration
from aot_registry.discovery import Declaration, declarations
from aot_registry.errors import BrokenBackendError, UnknownBackendError, suggest
from aot_registry.loading import LoadError, load_backend, load_info, target_of
from aot_registry.probing import DEFAULT_TIMEOUT, probe_all, probe_declaration

__all__ = ["BACKENDS", "find_declaration", "get_backend", "list_backends", "load_all", "probe", "tags_of"]

log = logging.getLogger(__name__)


def list_backends(exclude_tags: Collection[str] | None = ("debug",)) -> list[str]:
    """Return the names of the backends that are installed or registered, sorted. Never imports torch.

    A backend whose distribution gives no description, or a broken one, has no tags and is listed. torch's own
    backends are not: ``torch.compiler.list_backends()`` lists those.

    Args:
        exclude_tags: Leave out backends with one of these tags; None or ``()`` lists all.

    Raises:
        TypeError: ``exclude_tags`` is a string, which would exclude its letters.
    """
    if isinstance(exclude_tags, str):
        raise TypeError(
            f"exclude_tags must be a collection of tags, got the string {exclude_tags!r}; write "
            f"({exclude_tags!r},)"
        )
    excluded = set(exclude_tags or ())
    tags = {name: entry.tags for name, entry in registration.registered().items()}
    for name, declaration in declarations().items():
        tags[name] = tags_of(declaration) if excluded else ()
    return sorted(name for name in tags if excluded.isdisjoint(tags[name]))


def get_backend(name: str) -> Callable[..., Any]:
    """Import a backend and return the object that ``torch.compile(backend=...)`` takes.

    Args:
        name: As `list_backends` gives it, any tag.

    Raises:
        UnknownBackendError: nobody declares or registered it; names the closest ones, and all.
        BrokenBackendError: it can't be imported; names entry point, distribution, cause and remedy.
    """
    entry = registration.registered().get(name)
    if entry is not None:
        return entry.backend
    return load_declaration(find_declaration(name))


def load_declaration(declaration: Declaration) -> Callable[..., Any]:
    """Import the backend of one declaration.

    Raises:
        BrokenBackendError: it can't be imported.
    """
    try:
        if declaration.target is not None:
            return load_backend(declaration, declaration.target)
        return load_backend(declaration, target_of(declaration, load_info(declaration)))
    except LoadError as error:
        problem = error.problem
        raise BrokenBackendError(
            f"Backend {declaration.name!r} (entry point '{declaration.entry_point}' of {declaration.owner}) "
            f"can't be loaded [{problem.code}]: {problem.reason}. {problem.remedy}"
        ) from (error.__cause__ or error)


def probe(name: str, *, timeout: float = DEFAULT_TIMEOUT) -> Availability:
    """Tell whether a backend can be used here, by trying it in a subprocess.

    Whatever the backend does there, a crash and a hang included, ends up in the answer.

    Args:
        name: As `list_backends` gives it, any tag.
        timeout: Seconds after which it counts as hanging.

    Raises:
        UnknownBackendError: nobody declares or registered it.
    """
    if name in registration.registered():
        return Availability(True, "registered in this process")
    return probe_declaration(find_declaration(name), timeout=timeout).availability


def load_all(*, timeout: float = DEFAULT_TIMEOUT) -> dict[str, Callable[..., Any]]:
    """Import every backend that can be used here, debug backends included.

    Each is probed in a subprocess first, so that one that crashes or hangs does not take this process with
    it.

    Args:
        timeout: Seconds for each probe.

    Returns:
        The backend objects by name. What is left out is logged as a warning, with the reason.
    """
    backends = {name: entry.backend for name, entry in registration.registered().items()}
    for declaration, outcome in probe_all(declarations().values(), timeout=timeout).items():
        if not outcome.availability.usable:
            log.warning("backend %s is left out: %s", declaration.name, outcome.availability.reason)
            continue
        try:
            backends[declaration.name] = load_declaration(declaration)
        except BrokenBackendError as error:
            # It loads alone, and not beside what this process has imported already.
            log.warning("backend %s is left out: %s", declaration.name, error)
    return dict(sorted(backends.items()))


def find_declaration(name: str) -> Declaration:
    """Return who declares a backend.

    Raises:
        UnknownBackendError: nobody does.
    """
    declared = declarations()
    if name in declared:
        return declared[name]
    names = sorted({*declared, *registration.registered()})
    listing = f"Known are: {', '.join(names)}." if names else "No installed distribution declares any."
    raise UnknownBackendError(
        f"No backend is called {name!r}.{suggest(name, names)} {listing} `aot list --all` shows "
        "who declares what."
    )


def tags_of(declaration: Declaration) -> tuple[str, ...]:
    """Return the tags that its description gives a backend; none if that is missing or broken."""
    try:
        info = load_info(declaration)
    except LoadError as error:
        log.debug("no tags for %s: %s", declaration.name, error.problem.reason)
        return ()
    return info.tags if info is not None else ()


class _Backends(Mapping[str, Callable[..., Any]]):
    """All backends by name, debug backends included. A value is imported when it is asked for."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return get_backend(name)

    def __contains__(self, name: object) -> bool:
        return name in registration.registered() or name in declarations()

    def __iter__(self) -> Iterator[str]:
        return iter(list_backends(exclude_tags=None))

    def __len__(self) -> int:
        return len(list_backends(exclude_tags=None))

    def __repr__(self) -> str:
        # Mapping's would be the default; one that showed values would import them all.
        return f"BACKENDS({', '.join(self)})"


BACKENDS: Mapping[str, Callable[..., Any]] = _Backends()
"""Read-only view of what is installed and registered at the moment of asking."""
