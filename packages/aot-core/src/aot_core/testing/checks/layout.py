"""Strides: inputs of any memory format are read right, and outputs come in eager's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients
from aot_core.testing.subject import Subject


def _affine(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@check()
def noncontiguous_input(subject: Subject) -> Any:
    """Transposed and strided inputs are read element by element, not in memory order."""
    run = subject.compile(_affine)
    x = subject.arange(4, 6)
    return {"transposed": run(x.t()), "strided": run(x[::2, 1::2])}


@check()
def storage_offset(subject: Subject) -> Any:
    """Inputs that start in the middle of their storage are read from there."""
    run = subject.compile(_affine)
    x = subject.arange(7)
    return {"first": run(x[1:4]), "second": run(x[3:6])}


@check()
def expanded_input(subject: Subject) -> Any:
    """Inputs expanded with stride 0 are read right, and get the summed gradient."""
    x = subject.randn(3, 1, grad=True)
    out = subject.compile(torch.sin)(x.expand(3, 4))
    out.square().sum().backward()
    return {"out": out, "input.grad": x.grad}


@check()
def strides_change_between_calls(subject: Subject) -> Any:
    """The same shape in another memory order is another input, with eager's result."""
    run = subject.compile(_affine)
    x = subject.arange(3, 3)
    outputs = [run(x), run(x.t()), run(x)]
    return {"outputs": outputs, "strides": [out.stride() for out in outputs]}


@check()
def output_strides(subject: Subject) -> Any:
    """Outputs have the strides that they have in eager."""

    def layouts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t() * 2, x.permute(1, 0), (x + 1).t(), x.sum(0, keepdim=True).expand(3, 4)

    outputs = subject.compile(layouts)(subject.arange(3, 4))
    return {"outputs": outputs, "strides": [out.stride() for out in outputs]}


@check()
def channels_last(subject: Subject) -> Any:
    """A convolution over channels-last images gives channels-last outputs, and eager's gradients."""
    model = subject.place(nn.Conv2d(2, 3, 3)).to(memory_format=torch.channels_last)
    x = subject.randn(2, 2, 5, 5).contiguous(memory_format=torch.channels_last)
    out = subject.compile(model)(x).relu()
    out.sum().backward()
    return {"out": out, "stride": out.stride(), **gradients(model)}
