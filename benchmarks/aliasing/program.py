"""A random program as data, its Python source, and its FX graph.

A `Program` is one function body and one to three `Call` records. The body never changes; the calls say how
each tensor that goes in is made from which storage, so that what aliases what may differ from call to call.

Both ways to run a program come from the same statements: `Program.source` is what ``torch.compile`` gets (and
what a failure prints), `Program.graph` is what a backend gets with no Dynamo in front.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from typing import Any, Literal

import torch
from torch import fx

__all__ = ["Base", "Call", "Input", "Program", "Ref", "Statement", "Step"]

Mode = Literal["training", "no_grad", "inference_mode", "inference_tensors"]

PRELUDE = '''\
import math
import torch

def values(first, *shape):
    """Distinct numbers, owned by no other tensor."""
    return torch.arange(first, first + math.prod(shape), dtype=torch.float64).div(8).reshape(shape).clone()

def loss(tensors):
    """A number in which each element of each differentiable tensor has a weight of its own."""
    total = torch.zeros((), dtype=torch.float64)
    for position, tensor in enumerate(tensors):
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            weights = torch.arange(1, tensor.numel() + 1, dtype=torch.float64).view(tensor.shape)
            total = total + (tensor * weights).sum() * (position + 1)
    return total
'''


@dataclasses.dataclass(frozen=True)
class Ref:
    """A variable of the program."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class Step:
    """A method call, or an index when ``method`` is ``"[]"``."""

    method: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.method == "[]":
            return f"[{_index(self.args[0])}]"
        return f".{self.method}({', '.join(map(repr, self.args))})"


@dataclasses.dataclass(frozen=True)
class Statement:
    """One line of the body.

    Args:
        receiver: The variable it works on.
        step: What it does; ``"[]="`` with arguments ``(index, value)`` is an assignment to an index.
        target: The variable that gets the result; None for a statement run for its effect.
        no_grad: Whether it stands in a ``no_grad`` block.
    """

    receiver: Ref
    step: Step
    target: Ref | None = None
    no_grad: bool = False

    @property
    def writes(self) -> bool:
        """Whether it writes the receiver's data."""
        method = self.step.method
        return method == "[]=" or (method.endswith("_") and not self.changes_metadata)

    @property
    def changes_metadata(self) -> bool:
        """Whether it changes the receiver's sizes and strides."""
        return self.step.method in ("t_", "transpose_", "unsqueeze_", "squeeze_")

    @property
    def operands(self) -> tuple[Ref, ...]:
        """The variables that are read besides the receiver."""
        return tuple(arg for arg in self.step.args if isinstance(arg, Ref))

    def run(self, variables: dict[str, Any]) -> None:
        """Run it eagerly, with tensors by the names of their variables; stores the result under the target."""
        receiver = variables[self.receiver.name]
        args = [variables[arg.name] if isinstance(arg, Ref) else arg for arg in self.step.args]
        with torch.no_grad() if self.no_grad else contextlib.nullcontext():
            if self.step.method == "[]":
                result = receiver[args[0]]
            elif self.step.method == "[]=":
                result = operator.setitem(receiver, args[0], args[1])
            else:
                result = getattr(receiver, self.step.method)(*args)
        if self.target is not None:
            variables[self.target.name] = result

    def __str__(self) -> str:
        if self.step.method == "[]=":
            index, value = self.step.args
            line = f"{self.receiver}[{_index(index)}] = {value!r}"
        else:
            line = f"{self.receiver}{self.step}"
        if self.target is not None:
            line = f"{self.target} = {line}"
        return f"with torch.no_grad(): {line}" if self.no_grad else line


@dataclasses.dataclass(frozen=True)
class Base:
    """One storage.

    Args:
        first: Its first element; the others count up from there.
        shape: Sizes of the tensor that owns it.
        kind: ``"plain"`` needs no gradient, ``"leaf"`` is a leaf that does, ``"computed"`` is the clone of one.
    """

    first: int
    shape: tuple[int, ...]
    kind: Literal["plain", "leaf", "computed"]

    def lines(self, number: int) -> list[str]:
        """Return the source that makes ``root<number>`` (where gradients arrive) and ``base<number>``."""
        made = f"root{number} = values({', '.join(map(str, (self.first, *self.shape)))})"
        if self.kind != "plain":
            made += ".requires_grad_()"
        copied = ".clone()" if self.kind == "computed" else ""
        return [made, f"base{number} = root{number}{copied}"]


@dataclasses.dataclass(frozen=True)
class Input:
    """How one argument is made, outside of the function.

    Args:
        base: Number of its storage.
        steps: Views taken from the base, in order. None: the base object itself.
        how: ``"view"`` is taken as is, ``"no_grad"`` in a ``no_grad`` block, ``"detach"`` from ``base.detach()``.
        same_as: Position of an earlier argument: the very same object, whatever the fields above say.
    """

    base: int
    steps: tuple[Step, ...] = ()
    how: Literal["view", "no_grad", "detach"] = "view"
    same_as: int | None = None

    def line(self, name: str, names: tuple[str, ...]) -> str:
        """Return the source that makes the argument ``name``."""
        if self.same_as is not None:
            return f"{name} = {names[self.same_as]}"
        steps = (Step("detach"), *self.steps) if self.how == "detach" else self.steps
        line = f"{name} = base{self.base}" + "".join(map(str, steps))
        return f"with torch.no_grad(): {line}" if self.how == "no_grad" else line


@dataclasses.dataclass(frozen=True)
class Call:
    """The storages and arguments of one call. All calls of a program take as many arguments."""

    bases: tuple[Base, ...]
    inputs: tuple[Input, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """A function and the calls to make on it.

    Args:
        body: Statements, run in order.
        outputs: What is returned: variables, or plain numbers, strings and None.
        calls: Arguments of each call.
        mode: ``"training"`` ends in a backward. ``"inference_tensors"`` also makes its inputs in inference mode.
    """

    body: tuple[Statement, ...]
    outputs: tuple[Any, ...]
    calls: tuple[Call, ...]
    mode: Mode

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple("abcdefgh"[: len(self.calls[0].inputs)])

    @property
    def returned(self) -> tuple[Ref, ...]:
        """The variables among the outputs, each once."""
        return tuple(dict.fromkeys(output for output in self.outputs if isinstance(output, Ref)))

    @property
    def source(self) -> str:
        """Python source that defines ``f``, ``call_0``, ``call_1``, … and what they need.

        ``call_n()`` returns the roots, the bases and the arguments, each a list, made afresh.
        """
        body = [f"    {statement}" for statement in self.body]
        returned = " ".join(f"{output!r}," for output in self.outputs)
        lines = [PRELUDE, f"def f({', '.join(self.names)}):", *body, f"    return ({returned})", ""]
        for number in range(len(self.calls)):
            lines += [f"def call_{number}():", *(f"    {line}" for line in self._call_lines(number)), ""]
        return "\n".join(lines)

    def _call_lines(self, number: int) -> list[str]:
        call, lines = self.calls[number], []
        for position, base in enumerate(call.bases):
            lines += base.lines(position)
        for name, argument in zip(self.names, call.inputs, strict=True):
            lines.append(argument.line(name, self.names))
        roots = ", ".join(f"root{position}" for position in range(len(call.bases)))
        bases = ", ".join(f"base{position}" for position in range(len(call.bases)))
        return [*lines, f"return [{roots}], [{bases}], [{', '.join(self.names)}]"]

    def namespace(self) -> dict[str, Any]:
        """Return what running `source` defines."""
        names: dict[str, Any] = {}
        exec(compile(self.source, "<random program>", "exec"), names)
        return names

    def graph(self) -> fx.GraphModule:
        """Return the graph of the body; its outputs are `returned`, as Dynamo has each tensor only once."""
        graph = fx.Graph()
        nodes = {name: graph.placeholder(name) for name in self.names}

        def value(arg: Any) -> Any:
            return nodes[arg.name] if isinstance(arg, Ref) else arg

        for statement in self.body:
            receiver, step = nodes[statement.receiver.name], statement.step
            args = tuple(map(value, step.args))
            if statement.no_grad:
                graph.call_function(torch._C._set_grad_enabled, (False,))
            if step.method == "[]":
                node = graph.call_function(operator.getitem, (receiver, *args))
            elif step.method == "[]=":
                node = graph.call_function(operator.setitem, (receiver, *args))
            else:
                node = graph.call_method(step.method, (receiver, *args))
            if statement.no_grad:
                graph.call_function(torch._C._set_grad_enabled, (self.mode == "training",))
            if statement.target is not None:
                nodes[statement.target.name] = node
        graph.output(tuple(map(value, self.returned)))
        return fx.GraphModule(torch.nn.Module(), graph)


def _index(index: Any) -> str:
    parts = index if isinstance(index, tuple) else (index,)
    return ", ".join(_slice(part) if isinstance(part, slice) else repr(part) for part in parts)


def _slice(part: slice) -> str:
    start, stop = ("" if end is None else str(end) for end in (part.start, part.stop))
    return f"{start}:{stop}" + ("" if part.step is None else f":{part.step}")
