"""Sizes: that change between calls, that are zero or one, that are no tensor at all."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients, perceptron
from aot_core.testing.subject import Subject


@check()
def changing_batch_size(subject: Subject) -> Any:
    """Training with another batch size every call gives eager's outputs and gradients."""
    return _train_on_sizes(subject, dynamic=None)


@check()
def dynamic_batch_size(subject: Subject) -> Any:
    """With dynamic=True, training with another batch size every call gives eager's outputs and gradients."""
    return _train_on_sizes(subject, dynamic=True)


def _train_on_sizes(subject: Subject, dynamic: bool | None) -> Any:
    model = perceptron(subject)
    run = subject.compile(model, dynamic=dynamic)
    outputs = []
    for size in (3, 5, 2, 7):
        outputs.append(run(subject.randn(size, 4)))
        outputs[-1].square().sum().backward()
    return {"outputs": outputs, **gradients(model)}


@check()
def sizes_as_values(subject: Subject) -> Any:
    """Sizes that the model computes with, and returns, are those of the call."""

    def use_sizes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        rows, columns = x.shape
        positions = torch.arange(rows, device=x.device).unsqueeze(1)
        return x / rows + positions, x.reshape(columns, rows), rows * columns + 1

    run = subject.compile(use_sizes, dynamic=True)
    return {"outputs": [run(subject.arange(rows, 3)) for rows in (2, 4, 5)]}


@check()
def dynamic_mutation(subject: Subject) -> Any:
    """With dynamic=True, writes to inputs and views of them are eager's for every size."""

    def shift(x: torch.Tensor) -> torch.Tensor:
        x[: x.shape[0] // 2].add_(100)
        return x[1:]

    run = subject.compile(shift, dynamic=True)
    outputs = []
    for rows in (2, 4, 5):
        x = subject.arange(rows, 2)
        outputs += [run(x).mul_(2), x]
    return {"outputs": outputs}


@check()
def zero_size(subject: Subject) -> Any:
    """Tensors without elements pass forwards and backwards, before and after others."""
    model = perceptron(subject)
    run = subject.compile(model)
    outputs = []
    for size in (0, 3, 0):
        out = run(subject.randn(size, 4))
        out.sum().backward()
        outputs += [out, out.sum()]
    return {"outputs": outputs, **gradients(model)}


@check()
def zero_dimensional(subject: Subject) -> Any:
    """Tensors without dimensions stay so."""
    x, y = subject.randn(grad=True), subject.randn(3)
    out, total = subject.compile(lambda x, y: (x.sin() * 2, (x * y).sum()))(x, y)
    (out + total).backward()
    return {"out": out, "total": total, "input.grad": x.grad}


@check()
def broadcast_changes_between_calls(subject: Subject) -> Any:
    """A size that is 1 in one call and not in the next broadcasts in the first alone."""
    run = subject.compile(lambda a, b: a * b + a)
    outputs = []
    for rows in (1, 3, 1):
        a, b = subject.randn(rows, 4, grad=True), subject.randn(3, 4)
        outputs.append(run(a, b))
        outputs += torch.autograd.grad(outputs[-1].square().sum(), a)
    return {"outputs": outputs}


@check()
def python_numbers(subject: Subject) -> Any:
    """Arguments that are Python numbers count with the value of each call."""

    def scale(x: torch.Tensor, n: int, factor: float, flag: bool) -> torch.Tensor:
        y = x * factor + n
        return -y if flag else y

    run = subject.compile(scale)
    calls = ((2, 0.5, False), (3, 1.5, False), (5, -2.5, True), (7, 4.0, True))
    return {"outputs": [run(subject.arange(3), *arguments) for arguments in calls]}


@check()
def padding_and_reduction(subject: Subject) -> Any:
    """Reductions over several dimensions, padding and softmax give eager's values for odd sizes."""

    def reduce(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        padded = F.pad(x, (1, 2))
        return padded.softmax(-1).sum((0, 2)), padded.amax(1), padded.var(-1), padded.cumsum(1)

    return {"outputs": subject.compile(reduce)(subject.randn(3, 5, 7))}
