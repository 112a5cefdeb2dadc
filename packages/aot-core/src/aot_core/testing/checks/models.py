"""The few tiny modules that several checks share."""

from __future__ import annotations

import torch
from torch import nn

from aot_core.testing.subject import Subject

__all__ = ["gradients", "perceptron"]


def perceptron(subject: Subject) -> nn.Sequential:
    """Return a network from 4 to 2 features with one hidden layer."""
    net: nn.Sequential = subject.place(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    return net


def gradients(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """Return what ``.backward()`` left in each parameter."""
    return {f"{name}.grad": parameter.grad for name, parameter in module.named_parameters()}
