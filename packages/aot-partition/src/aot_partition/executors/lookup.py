"""Executors by name. One is imported when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from aot_partition.errors import UnknownExecutorError
from aot_partition.executors.protocol import Executor

__all__ = ["EXECUTORS", "find_executor"]

EXECUTORS: Mapping[str, str] = MappingProxyType(
    {
        "aten": "aot_partition.executors.aten:EXECUTOR",
        "nvfuser": "aot_partition.nvfuser.executor:EXECUTOR",
    }
)
"""Name → ``"module:attribute"`` of the executors that come with this package."""


def find_executor(executor: str | Executor) -> Executor:
    """Return an executor.

    Args:
        executor: ``"aten"``, ``"nvfuser"``, the ``"module:attribute"`` of another, or an executor itself.

    Raises:
        UnknownExecutorError: no such name, or what is there is no executor.
    """
    if not isinstance(executor, str):
        return _checked(executor, repr(executor))
    reference = EXECUTORS.get(executor, executor)
    module, colon, attribute = reference.partition(":")
    if not colon:
        raise UnknownExecutorError(
            f"No executor {executor!r}. There are {', '.join(map(repr, EXECUTORS))}; others are given as objects or as "
            "'module:attribute'."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownExecutorError(
            f"Executor {executor!r} can't be loaded from {reference!r}: {error}."
        ) from error
    return _checked(found, reference)


def _checked(found: object, what: str) -> Executor:
    if not isinstance(found, Executor):
        raise UnknownExecutorError(
            f"{what} is no executor: expected an object with name, device_types, availability, refuse and "
            f"compile_region, got {type(found).__name__}."
        )
    return found
