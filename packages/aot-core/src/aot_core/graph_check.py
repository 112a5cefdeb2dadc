"""Interpreters that compare what a graph computes with what its trace promised.

A compiler plans by metadata: it sizes buffers and picks layouts from the fake tensors of the trace. Where a
fake tensor and the real one differ, eager goes on and compiled code reads the wrong memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from aot_core import _compat
from aot_core._compat import pytree
from aot_core.boxed_calls import boxed
from aot_core.errors import GraphCheckError
from aot_core.interpreter import RuntimeInterpreter
from aot_core.protocol import BoxedCallable
from aot_core.source import source_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CrossrefInterpreter", "MetadataInterpreter", "interpreted"]


def interpreted(gm: fx.GraphModule, interpreter: type[MetadataInterpreter]) -> BoxedCallable:
    """Return a graph as a boxed callable that an interpreter runs.

    Each call gets an interpreter of its own, whose environment is not for two threads.
    """

    def run(args: list[Any]) -> Any:
        inputs = tuple(args)
        args.clear()
        return interpreter(gm).run(*inputs)

    return boxed(run)


class MetadataInterpreter(RuntimeInterpreter):
    """Runs a graph and compares dtype, size and strides of each value with ``meta["val"]``.

    Symbolic sizes are resolved with the sizes of the actual inputs. Strides are compared where they can be
    told: not along dimensions of size 1, nor in tensors without elements.

    Raises:
        GraphCheckError: the first value that differs; names its node and the user's source line.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self._symbols: dict[Any, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "placeholder":
            self._learn_symbols(n.meta.get("val"), result)
        if n.op in ("placeholder", "call_function", "get_attr"):
            self.check(n, result)
        return result

    def check(self, node: fx.Node, result: Any) -> None:
        """Compare one node's value with the trace's."""
        promised = node.meta.get("val")
        if promised is not None:
            self.compare(node, promised, result, "its metadata")

    def compare(self, node: fx.Node, promised: Any, actual: Any, whose: str) -> None:
        """Compare a value, or a structure of values, with what was promised for it."""
        wanted, found = pytree.tree_leaves(promised), pytree.tree_leaves(actual)
        if len(wanted) != len(found):
            self._fail(node, f"{len(wanted)} values", f"{len(found)} values", whose)
        for one, other in zip(wanted, found, strict=True):
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                self._compare_tensors(node, one, other, whose)

    def _compare_tensors(
        self, node: fx.Node, promised: torch.Tensor, actual: torch.Tensor, whose: str
    ) -> None:
        if promised.dtype != actual.dtype:
            self._fail(node, f"dtype {promised.dtype}", f"dtype {actual.dtype}", whose)
        if promised.dim() != actual.dim():
            self._fail(node, f"{promised.dim()} dimensions", f"{actual.dim()} dimensions", whose)
        size = [self._resolve(n) for n in promised.size()]
        if any(known not in (None, n) for known, n in zip(size, actual.size(), strict=True)):
            self._fail(node, f"size {tuple(promised.size())}", f"size {tuple(actual.size())}", whose)
        if promised.layout is not torch.strided or actual.layout is not torch.strided or actual.numel() == 0:
            return
        stride = [self._resolve(n) for n in promised.stride()]
        for n, known, found in zip(actual.size(), stride, actual.stride(), strict=True):
            if n > 1 and known not in (None, found):
                self._fail(node, f"strides {tuple(promised.stride())}", f"strides {actual.stride()}", whose)

    def _learn_symbols(self, promised: Any, actual: Any) -> None:
        if isinstance(promised, torch.SymInt) and isinstance(actual, int):
            self._symbols[_compat.expression(promised)] = actual
        elif isinstance(promised, torch.Tensor) and isinstance(actual, torch.Tensor):
            for symbolic, number in _sizes_and_strides(promised, actual):
                if isinstance(symbolic, torch.SymInt):
                    self._symbols.setdefault(_compat.expression(symbolic), number)

    def _resolve(self, value: Any) -> int | None:
        """Return the number that a size stands for in this call, or None if that can't be told."""
        if isinstance(value, int):
            return value
        expression = _compat.expression(value)
        if expression in self._symbols:
            return self._symbols[expression]
        resolved = expression.subs({s: n for s, n in self._symbols.items() if s.is_symbol})
        return int(resolved) if resolved.is_integer and resolved.is_number else None

    def _fail(self, node: fx.Node, expected: str, got: str, whose: str) -> None:
        where = source_line(node)
        raise GraphCheckError(
            f"{node.name} = {node.target}{f' ({where})' if where else ''} gave {got}, {whose} promised "
            f"{expected}. A compiler that trusts the promise reads or writes the wrong memory: the fake "
            "(meta) implementation of this operation, or a decomposition, is at fault."
        )


class CrossrefInterpreter(MetadataInterpreter):
    """Also runs each operation on fake versions of the values it got, and compares with what it gave.

    Finds a meta function that is wrong for *these* inputs where the trace's symbolic ones hid it.
    """

    def check(self, node: fx.Node, result: Any) -> None:
        super().check(node, result)
        if node.op == "call_function" and _compat.is_operator(node.target):
            promised = self._run_fake(node)
            if promised is not None:
                self.compare(node, promised, result, "its meta function")

    def _run_fake(self, node: fx.Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        mode = _compat.new_fake_mode()

        def fake(value: Any) -> Any:
            return mode.from_tensor(value.detach()) if isinstance(value, torch.Tensor) else value

        args, kwargs = pytree.tree_map(fake, (args, kwargs))
        try:
            with mode:
                return node.target(*args, **kwargs)  # type: ignore[operator]
        except _compat.fake_tensor_limits():
            return None  # the output's size depends on data: there is no promise to compare with


def _sizes_and_strides(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[Any, int]]:
    yield from zip(one.size(), other.size(), strict=False)
    if one.layout is torch.strided and other.layout is torch.strided:
        yield from zip(one.stride(), other.stride(), strict=False)
