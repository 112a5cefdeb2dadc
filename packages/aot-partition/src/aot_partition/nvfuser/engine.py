"""What builds and runs fusions: nvFuser itself, or what stands for it in tests."""

from __future__ import annotations

import collections
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aot_partition import _compat
from aot_partition.nvfuser.definition import Definition

__all__ = ["Engine", "Fusion", "FusionCache", "NvFuser"]

Fusion = Callable[[list[Any]], Sequence[Any]]
"""Takes the inputs of a fusion and returns its outputs."""


class Engine(Protocol):
    """Builds fusions."""

    def build(self, definition: Definition) -> Fusion:
        """Build a fusion.

        Raises:
            Exception: any, where the definition is refused.
        """
        ...


class NvFuser:
    """nvFuser's module ``nvfuser_direct``, imported with the first fusion that is built."""

    def build(self, definition: Definition) -> Fusion:
        """Say a fusion to nvFuser. Kernels are generated when it is first run."""
        execute: Fusion = self.define(definition).execute
        return execute

    def define(self, definition: Definition) -> Any:
        """Return nvFuser's ``FusionDefinition``."""
        failure: Exception | None = None
        # A trace may be under way, and nvFuser's import computes with real tensors.
        with _compat.no_modes():
            module = importlib.import_module("nvfuser_direct")
            with module.FusionDefinition() as fd:
                # What leaves the block as an exception, nvFuser prints.
                try:
                    definition.replay(fd, module.DataType)
                except Exception as error:
                    failure = error
        if failure is not None:
            raise failure
        return fd


class FusionCache:
    """Fusions that were built, by their source: the layers of a model share those that are the same.

    Args:
        engine: What builds those that are missing.
        limit: How many are kept; the one that was used the longest time ago goes first.
    """

    def __init__(self, engine: Engine, limit: int = 4096) -> None:
        self._engine = engine
        self._limit = limit
        self._built: collections.OrderedDict[str, Fusion] = collections.OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def get(self, definition: Definition) -> Fusion:
        """Return the fusion of a definition, built now or before.

        Raises:
            Exception: any that the engine raises; nothing is kept then.
        """
        with self._lock:
            found = self._built.get(definition.source)
            if found is not None:
                self._built.move_to_end(definition.source)
                self.hits += 1
                return found
            self.misses += 1
            built = self._engine.build(definition)
            self._built[definition.source] = built
            if len(self._built) > self._limit:
                self._built.popitem(last=False)
            return built

    def __len__(self) -> int:
        return len(self._built)
