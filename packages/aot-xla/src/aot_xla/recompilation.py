"""How often XLA compiles a graph: counted, reported, and warned of when it goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from aot_core import Compilation, Decision
from aot_xla.tally import Tally

__all__ = ["WARN_AFTER", "Recompilations"]

log = logging.getLogger(__name__)

WARN_AFTER = 8
"""Recompilations of one graph after which a warning is logged, and the report names no further ones."""


class Recompilations:
    """Counts the computations that XLA compiled for one stage of one graph; all but the first are again.

    Args:
        compilation: Whose report tells of them.
        tally: Where they are counted.
    """

    def __init__(self, compilation: Compilation, tally: Tally) -> None:
        self._compilation = compilation
        self._stage = compilation.stage
        self._tally = tally

    def note(self, shapes: Sequence[Any]) -> None:
        """Count one computation, compiled for inputs of these shapes."""
        again = self._tally.add("xla_compilations", 1) - 1
        if not 1 <= again <= WARN_AFTER:
            return
        listed = ", ".join(str(tuple(shape)) for shape in shapes[-3:])
        self._compilation.decide(
            Decision(
                self._stage,
                f"graph {self._compilation.graph}",
                "recompile",
                "new-shapes",
                f"recompilation {again}: XLA compiles for one set of shapes, and these are new: ... {listed}",
            )
        )
        if again == WARN_AFTER:
            log.warning(
                "%s was compiled by XLA %d times for its %s, each time for new shapes (the last: ... %s). Each takes "
                "as long as the first. Pad inputs to a few sizes.",
                self._compilation.subject,
                again + 1,
                self._stage,
                listed,
            )
