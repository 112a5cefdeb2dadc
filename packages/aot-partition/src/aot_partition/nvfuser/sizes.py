"""Symbolic sizes of a graph as scalars of a fusion.

A symbol is read from an input that has it: a tensor's dimension, or a number that the region takes. An expression of
symbols is computed by the fusion, so that the definition serves every value of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from aot_partition import _compat
from aot_partition.nvfuser.definition import Recorder, Value

__all__ = ["Sizes", "unsupported_size"]

_OPERATIONS = {"Add": "add", "Mul": "mul"}
_DIVISIONS = ("FloorDiv", "CleanDiv")
_REMAINDERS = ("Mod", "PythonMod")


def unsupported_size(size: Any) -> str | None:
    """Return why a size can't be computed by a fusion, or None if it can."""
    if type(size) is int:
        return None
    pending = [_compat.expression(size)]
    while pending:
        expression = pending.pop()
        kind = type(expression).__name__
        if expression.is_Symbol or expression.is_Integer:
            continue
        if kind not in (*_OPERATIONS, *_DIVISIONS, *_REMAINDERS):
            return f"size {size} needs {kind}"
        pending.extend(expression.args)
    return None


class Sizes:
    """Sizes of one region, each symbol read once.

    Args:
        recorder: Where instructions go.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sources: dict[Any, Callable[[], Value]] = {}
        self._known: dict[Any, int | Value] = {}

    def add_tensor(self, sizes: Iterable[Any], value: Value) -> None:
        """Tell of an input, whose sizes may be symbols."""
        for i, size in enumerate(sizes):
            if type(size) is not int and (symbol := _compat.expression(size)).is_Symbol:
                self._sources.setdefault(symbol, lambda i=i: self._recorder.ops.size(value, i))  # type: ignore[misc]

    def add_number(self, number: Any, value: Value) -> None:
        """Tell of a number that the region takes."""
        if type(number) is not int:
            self._known[_compat.expression(number)] = value

    def __call__(self, size: Any) -> int | Value:
        """Return a size as a number or as a scalar of the fusion."""
        return size if type(size) is int else self._read(_compat.expression(size))

    def _read(self, expression: Any) -> int | Value:
        if expression not in self._known:
            self._known[expression] = self._computed(expression)
        return self._known[expression]

    def _computed(self, expression: Any) -> int | Value:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return self._sources[expression]()
        kind = type(expression).__name__
        read = [self._scalar(self._read(each)) for each in expression.args]
        ops = self._recorder.ops
        if kind in _DIVISIONS:
            made: Value = ops.div(*read)
        elif kind in _REMAINDERS:
            made = ops.mod(*read)
        else:
            made, *others = read
            for each in others:
                made = ops(_OPERATIONS[kind], made, each)
        return made

    def _scalar(self, number: int | Value) -> Value:
        return number if isinstance(number, Value) else self._recorder.constant(number, torch.int64)
