"""Mixed precision: the state at the call decides the forward, the state at ``.backward()`` the backward.

The checks of the backward use numbers such as 1 + 2**-10, which bfloat16 rounds to 1: a matrix product of
them is a whole number in bfloat16 and is not in float32, exactly so in both and in any order of summation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients, perceptron
from aot_core.testing.subject import Subject


def _autocast(subject: Subject, enabled: bool = True) -> AbstractContextManager[None]:
    return torch.autocast(subject.device.type, dtype=torch.bfloat16, enabled=enabled)


@check()
def autocast_training(subject: Subject) -> Any:
    """Forward and backward under autocast give eager's outputs, dtypes and gradients."""
    model = perceptron(subject)
    run = subject.compile(model)
    with _autocast(subject):
        out = run(subject.randn(3, 4))
        out.float().square().sum().backward()
    return {"out": out, **gradients(model)}


@check()
def autocast_forward_only(subject: Subject) -> Any:
    """The recommended loop, autocast around the forward alone, gives eager's gradients."""
    model = perceptron(subject)
    run = subject.compile(model)
    with _autocast(subject):
        out = run(subject.randn(3, 4))
    out.float().square().sum().backward()
    return {"out": out, **gradients(model)}


@check()
def autocast_inside_model(subject: Subject) -> Any:
    """A model that enters autocast itself, and leaves it for a part, gives eager's dtypes and values."""
    w, v = subject.randn(4, 4), subject.randn(4, 4)

    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with _autocast(subject):
            low = x @ w
            with _autocast(subject, enabled=False):
                high = x @ v
        return low, high, x @ v

    x = subject.randn(3, 4, grad=True)
    outputs = subject.compile(mixed)(x)
    sum(out.float().sum() for out in outputs).backward()
    return {"outputs": outputs, "input.grad": x.grad}


@check()
def autocast_changes_between_calls(subject: Subject) -> Any:
    """One compiled function called with autocast off, on and off again follows each time."""
    w = subject.randn(4, 2)
    run = subject.compile(lambda x: x @ w)
    outputs = []
    for enabled in (False, True, False):
        with _autocast(subject, enabled):
            outputs.append(run(subject.randn(3, 4)))
    return {"outputs": outputs}


@check(exact=True)
def autocast_backward_outside(subject: Subject) -> Any:
    """Forward under autocast, backward outside: what was computed in float32 has float32 gradients."""
    step = _full_precision_step(subject)
    return step(_autocast(subject), contextlib.nullcontext())


@check(exact=True)
def autocast_backward_inside(subject: Subject) -> Any:
    """Forward outside autocast, backward inside: its matrix products are in low precision, as in eager."""
    step = _full_precision_step(subject)
    return step(contextlib.nullcontext(), _autocast(subject))


@check(exact=True)
def autocast_around_both(subject: Subject) -> Any:
    """Forward and backward under autocast: the backward's matrix products are in low precision."""
    step = _full_precision_step(subject)
    return step(_autocast(subject), _autocast(subject))


@check(exact=True)
def autocast_backward_changes_between_calls(subject: Subject) -> Any:
    """One compiled function whose backward runs inside autocast, outside and inside follows each time."""
    step = _full_precision_step(subject)
    return [step(contextlib.nullcontext(), _autocast(subject, inside)) for inside in (True, False, True)]


def _full_precision_step(subject: Subject) -> Callable[..., dict[str, Any]]:
    """Compile a product that is in float32 whatever surrounds it; its backward obeys what surrounds that."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with _autocast(subject, enabled=False):
            return x @ w

    run = subject.compile(product)

    def step(forward: AbstractContextManager[Any], backward: AbstractContextManager[Any]) -> dict[str, Any]:
        x = (subject.arange(3, 4) % 3 + 1 + 2**-10).requires_grad_()
        w = (subject.arange(4, 2) % 3 + 1 + 2**-10).requires_grad_()
        with forward:
            out = run(x, w)
        with backward:
            out.sum().backward()
        return {"out": out, "x.grad": x.grad, "w.grad": w.grad}

    return step
