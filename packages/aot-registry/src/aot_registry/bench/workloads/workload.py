"""What a workload is: a model, its batches, its loss, and the optimizer it is trained with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["Workload", "call_model", "map_tensors"]

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Something to train.

    Args:
        name: As the user wrote it.
        model: In its initial state. Each contender trains a deep copy.
        batches: Pairs ``(inputs, target)``; step ``i`` takes number ``i % len(batches)``. ``inputs`` is a
            tensor, a tuple of positional arguments or a dictionary of keyword arguments of the model.
        loss_fn: ``loss_fn(output, target)`` returns a tensor with one element.
        make_optimizer: Makes an optimizer for a contender's own parameters.
    """

    name: str
    model: nn.Module
    batches: Sequence[tuple[Any, Any]]
    loss_fn: Callable[[Any, Any], torch.Tensor]
    make_optimizer: OptimizerFactory

    @property
    def device(self) -> torch.device:
        """Where the first parameter lies."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Workload:
        """Return the workload with model and batches on ``device``. The model is moved in place."""
        batches = map_tensors(list(self.batches), lambda tensor: tensor.to(device))
        return dataclasses.replace(self, model=self.model.to(device), batches=batches)


def call_model(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model with a batch's inputs: a tuple positionally, a dictionary by keyword, else as it is."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(inputs)


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Apply ``function`` to every tensor in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, list):
        return [map_tensors(item, function) for item in value]
    if isinstance(value, tuple):
        items = [map_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
