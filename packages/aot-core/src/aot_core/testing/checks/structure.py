"""The shape of a call: containers, constants, graph breaks, branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients
from aot_core.testing.subject import Subject


class _Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@check()
def container_inputs(subject: Subject) -> Any:
    """Tensors in lists, tuples, dictionaries and named tuples arrive where they belong."""

    def combine(items: list[Any], named: dict[str, Any], pair: _Pair) -> torch.Tensor:
        first, (second, third) = items
        out: torch.Tensor = first - 2 * second + 3 * third - named["a"] / named["b"] + pair.left * pair.right
        return out

    a, b, c, d, e, f, g = (subject.randn(3) + 2 for _ in range(7))
    return {"out": subject.compile(combine)([a, (b, c)], {"b": e, "a": d}, _Pair(f, g))}


@check()
def container_outputs(subject: Subject) -> Any:
    """Outputs come in the containers that the model puts them in, in its order."""

    def nest(x: torch.Tensor) -> dict[str, Any]:
        return {"list": [x + 1, (x + 2, x + 3)], "dict": {"b": x + 4, "a": x + 5}, "pair": _Pair(x, x + 6)}

    return subject.compile(nest)(subject.arange(3))


@check()
def keyword_arguments(subject: Subject) -> Any:
    """Keyword and default arguments, in any order, reach their parameters."""
    default = subject.randn(3)

    def subtract(
        a: torch.Tensor, b: torch.Tensor = default, *, c: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = a - 2 * b
        return out if c is None else out - 3 * c

    run = subject.compile(subtract)
    a, b, c = (subject.randn(3) for _ in range(3))
    return {"outputs": [run(a), run(b=b, a=a), run(c=c, a=a), run(a, b, c=c)]}


@check()
def none_and_number_outputs(subject: Subject) -> Any:
    """Outputs that are None, numbers or strings keep their type and place."""

    def mixed(x: torch.Tensor) -> tuple[Any, ...]:
        return None, x * 2, 3, "text", x.shape[0], None, 1.5, x + 1

    return {"outputs": subject.compile(mixed)(subject.arange(3))}


@check()
def none_gradient(subject: Subject) -> Any:
    """Outputs with None among them pass gradients to the right inputs."""
    a, b = subject.randn(3, grad=True), subject.randn(3, grad=True)

    def gapped(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        return a.sin(), None, b.cos()

    first, _, second = subject.compile(gapped)(a, b)
    (first.sum() + 2 * second.sum()).backward()
    return {"a.grad": a.grad, "b.grad": b.grad}


@check()
def closure_variables(subject: Subject) -> Any:
    """Tensors that a function closes over are read afresh in every call."""
    scale = subject.randn(3)
    run = subject.compile(lambda x: x * scale)
    x = subject.randn(3)
    before = run(x)
    scale.fill_(2)
    return {"before": before, "after": run(x)}


@check()
def many_inputs(subject: Subject) -> Any:
    """A hundred inputs and as many outputs keep their order."""
    inputs = [subject.arange(2) + 10 * index for index in range(100)]
    outputs = subject.compile(lambda items: [item + i for i, item in enumerate(items)])(inputs)
    return {"outputs": outputs}


@check()
def fullgraph(subject: Subject) -> Any:
    """With fullgraph=True a model with submodules, loop and branch runs as one graph, forwards and backwards."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for index, layer in enumerate(self.layers):
                x = x + torch.tanh(layer(x)) if index % 2 else layer(x)
            return x

    model = subject.place(Residual())
    x = subject.randn(3, 4, grad=True)
    out = subject.compile(model, fullgraph=True)(x)
    out.square().sum().backward()
    return {"out": out, "input.grad": x.grad, **gradients(model)}


@check()
def graph_break(subject: Subject) -> Any:
    """A branch on a tensor's value, which splits the graph, is taken by the value; gradients pass the split."""

    def branch(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            return y.sin()
        return y.cos() - 1

    run = subject.compile(branch)
    outputs = []
    for sign in (1, -1):
        x = (subject.arange(3) * sign).requires_grad_()
        out = run(x)
        outputs += [out, *torch.autograd.grad(out.sum(), x)]
    return {"outputs": outputs}


@check()
def uncompiled_part(subject: Subject) -> Any:
    """A part of the model that torch.compiler.disable keeps in eager works with the compiled rest."""

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.detach().abs().max())

    eager_part: Callable[[torch.Tensor], torch.Tensor] = torch.compiler.disable(scale)  # type: ignore[no-untyped-call]

    def model(x: torch.Tensor) -> torch.Tensor:
        return eager_part(x.sin()).exp()

    x = subject.randn(4, grad=True)
    out = subject.compile(model)(x)
    out.sum().backward()
    return {"out": out, "input.grad": x.grad}


@check()
def cond(subject: Subject) -> Any:
    """torch.cond takes the branch that the predicate says, within one graph."""

    def branch(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 3, (x,))
        return out

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x * 3

    # In eager torch.cond compiles itself, with a backend of PyTorch's choice.
    run = plain if subject.backend is None else subject.compile(branch, fullgraph=True)
    x = subject.randn(4).abs()
    return {"true": run(x), "false": run(-x)}


@check()
def cond_in_training(subject: Subject) -> Any:
    """torch.cond passes gradients through the branch taken."""

    def branch(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 3, (x,))
        return out

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x * 3

    run = plain if subject.backend is None else subject.compile(branch, fullgraph=True)
    found: list[torch.Tensor] = []
    for sign in (1, -1):
        x = (subject.randn(4).abs() * sign).requires_grad_()
        found += torch.autograd.grad(run(x).sum(), x)
    return {"gradients": found}


@check()
def while_loop(subject: Subject) -> Any:
    """torch.while_loop runs as often as its condition says, within one graph."""
    if not hasattr(torch, "while_loop"):
        subject.skip("this PyTorch has no torch.while_loop")

    def loop(n: torch.Tensor, x: torch.Tensor) -> Any:
        def body(n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n - 1, x * 2

        return torch.while_loop(lambda n, x: n > 0, body, (n, x))  # type: ignore[no-untyped-call]

    def plain(n: torch.Tensor, x: torch.Tensor) -> Any:
        while n > 0:
            n, x = n - 1, x * 2
        return n, x

    run = plain if subject.backend is None else subject.compile(loop, fullgraph=True)
    count = subject.place(torch.tensor(3))
    return {"out": list(run(count, subject.arange(3)))}
