"""Engines for machines without a GPU: fusions that the reference interpreter runs."""

from __future__ import annotations

from typing import Any

from aot_partition.nvfuser.definition import Definition
from aot_partition.nvfuser.engine import Fusion, NvFuser
from aot_partition.nvfuser.testing.interpreter import interpret, run_printed

__all__ = ["PrintedEngine", "ReferenceEngine"]

PRINTED_DIGITS = 6
"""How many digits of a constant nvFuser prints."""


class ReferenceEngine:
    """Runs definitions with the reference interpreter."""

    def build(self, definition: Definition) -> Fusion:
        """Return what interprets a definition."""
        return lambda inputs: interpret(definition, inputs)


class PrintedEngine:
    """Has the real nvFuser build each fusion, and interprets what it prints of it.

    Attributes:
        texts: What was printed.
    """

    def __init__(self) -> None:
        self._nvfuser = NvFuser()
        self.texts: list[str] = []

    def build(self, definition: Definition) -> Fusion:
        """Build a fusion, print it, and return what interprets the text."""
        exact, constants = definition.with_float_inputs(PRINTED_DIGITS)
        text = str(self._nvfuser.define(exact))
        self.texts.append(text)

        def run(inputs: list[Any]) -> list[Any]:
            return run_printed(text, [*inputs, *constants])

        return run
