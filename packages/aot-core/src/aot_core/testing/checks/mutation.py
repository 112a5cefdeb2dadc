"""What a model writes: buffers, inputs, parameters, and that autograd is told of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients
from aot_core.testing.subject import Subject


@check()
def batch_norm_statistics(subject: Subject) -> Any:
    """Training steps update running mean, variance and batch count."""
    model = subject.place(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)))
    run = subject.compile(model)
    for _ in range(2):
        run(subject.randn(4, 2, 5, 5)).sum().backward()
    return {"buffers": dict(model.named_buffers())}


@check()
def counter_buffer(subject: Subject) -> Any:
    """A buffer that counts calls, and a Python attribute that does, count every one."""

    class Counting(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.seen = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.seen += 1
            return x * self.calls

    model = subject.place(Counting())
    calls = model.calls
    run = subject.compile(model)
    outputs = [run(subject.arange(3)) for _ in range(3)]
    return {"outputs": outputs, "calls": calls, "seen": model.seen}


@check()
def input_data(subject: Subject) -> Any:
    """An in-place operation on an input is seen by the caller."""
    x = subject.arange(4)

    def double(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    return {"out": subject.compile(double)(x), "input": x}


@check()
def input_slice(subject: Subject) -> Any:
    """Writes to part of an input, by slice, index and mask, are seen by the caller."""
    x, index = subject.arange(3, 4), subject.place(torch.tensor([0, 2]))

    def write(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x[1, :2] = -1
        x[:, 3].index_fill_(0, index, 7)
        x.masked_fill_(x == 5, 0)
        return x.sum()

    return {"out": subject.compile(write)(x, index), "input": x}


@check()
def input_metadata(subject: Subject) -> Any:
    """In-place changes of an input's shape and strides are seen by the caller."""
    x, y = subject.arange(2, 3), subject.arange(4)

    def reshape(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.t_()
        y.unsqueeze_(0)
        return x.sum() + y

    with torch.no_grad():
        out = subject.compile(reshape)(x, y)
    return {"out": out, "inputs": [x, y], "strides": [x.stride(), y.stride()]}


@check()
def input_data_and_metadata(subject: Subject) -> Any:
    """An input that is both transposed and written in place comes out as in eager."""
    x = subject.arange(2, 3)

    def reshape(x: torch.Tensor) -> torch.Tensor:
        x.transpose_(0, 1)
        x.add_(10)
        return x[0]

    with torch.no_grad():
        out = subject.compile(reshape)(x)
    return {"out": out, "input": x, "strides": x.stride()}


@check()
def input_in_training(subject: Subject) -> Any:
    """Gradients flow through an in-place operation on an input."""
    leaf = subject.randn(4, grad=True)
    x = leaf * 1

    def scale(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x.sin()

    out = subject.compile(scale)(x)
    (out.sum() + x.square().sum()).backward()
    return {"out": out, "input": x, "leaf.grad": leaf.grad}


@check()
def input_under_inference_mode(subject: Subject) -> Any:
    """An in-place operation on an input is seen by the caller under inference_mode."""
    with torch.inference_mode():
        x = subject.arange(4)

        def double(x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x + 1

        out = subject.compile(double)(x)
    return {"out": out.tolist(), "input": x.tolist()}


@check()
def parameter_under_no_grad(subject: Subject) -> Any:
    """A parameter that the model itself rescales under no_grad is changed, and its gradient right."""

    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4) * 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.clamp_(-1, 1)
            return x * self.weight

    model = subject.place(Clamped())
    subject.compile(model)(subject.randn(3, 4)).square().sum().backward()
    return {"clamped": model.weight, **gradients(model)}


@check()
def mutation_is_seen_by_autograd(subject: Subject) -> Any:
    """Overwriting in a compiled function what eager saved for backward raises, instead of a wrong gradient."""
    x, w = subject.randn(4, grad=True), subject.randn(4)

    def clear(w: torch.Tensor) -> None:
        w.zero_()

    out = (x * w).sum()
    subject.compile(clear)(w)
    try:
        out.backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    raise AssertionError(f"backward() used an overwritten tensor without an error, and gave {x.grad}")


@check()
def buffer_swap(subject: Subject) -> Any:
    """A model that writes one buffer from another and back keeps both right over calls."""

    class Fibonacci(nn.Module):
        a: torch.Tensor
        b: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.ones(2))
            self.register_buffer("b", torch.ones(2))

        def forward(self) -> torch.Tensor:
            total = self.a + self.b
            self.a.copy_(self.b)
            self.b.copy_(total)
            return total

    model = subject.place(Fibonacci())
    run = subject.compile(model)
    return {"out": [run() for _ in range(4)], "buffers": dict(model.named_buffers())}
