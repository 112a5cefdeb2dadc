"""Copies of a model, its inputs and its loss that share memory as the originals do, perhaps in another precision.

Each run of a bisection gets copies of its own, so that none sees what another wrote.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from aot_registry import _compat
from aot_registry.bisecting.errors import InvalidSubjectError

__all__ = ["Subject", "Unconvertible", "copied", "laid_out_copy", "working_dtype"]


class Unconvertible(Exception):
    """A memory holds elements of two types, so that no copy in another precision shares it likewise."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is bisected.

    Args:
        model: A module or another callable.
        inputs: A tuple of positional arguments, a dictionary of keyword arguments, or one argument.
        loss_fn: ``loss_fn(output, target)`` gives the loss; None: random cotangents take its place.
        target: Its second argument.
    """

    model: Callable[..., Any]
    inputs: Any
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None
    target: Any = None


def copied(
    subject: Subject, dtype: torch.dtype | None = None
) -> tuple[Subject, list[tuple[str, torch.Tensor]]]:
    """Copy a subject.

    Tensors that share memory share memory in the copy, a view stays a view of its base, one tensor passed twice
    stays one. Gradients are not copied.

    Args:
        subject: The original.
        dtype: What floating-point parameters, buffers and inputs become; None: what they are.

    Returns:
        The copy, and the tensors in it that autograd may give a gradient or a call may write, by name:
        parameters, buffers, tensors among the inputs, and the bases of inputs that are views.

    Raises:
        Unconvertible: see there.
        InvalidSubjectError: something in it can't be copied.
    """
    copies = _TensorCopies(dtype)
    named = _named_tensors(subject)
    try:
        memo: dict[int, Any] = {id(tensor): copies.copy(tensor) for _, tensor in named}
        for _, tensor in _compat.named_leaves("target", subject.target):
            if isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = copies.copy(tensor)
        parts = (subject.model, subject.inputs, subject.loss_fn, subject.target)
        model, inputs, loss_fn, target = copy.deepcopy(parts, memo)
    except Unconvertible:
        raise
    except Exception as error:
        raise InvalidSubjectError(
            f"Each run takes a copy of the model and its inputs, and copying raised {type(error).__name__}: "
            f"{error}. Keep only parameters, buffers and plain data in the attributes of the model."
        ) from error
    return Subject(model, inputs, loss_fn, target), [(name, memo[id(tensor)]) for name, tensor in named]


def laid_out_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of one tensor, without history, with the strides of the original whatever they are."""
    if tensor.layout is not torch.strided or _compat.is_subclass(tensor):
        return tensor.detach().clone()
    with torch.no_grad():
        memory = _flat(tensor).clone().untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    return made


def working_dtype(subject: Subject) -> torch.dtype:
    """Return the floating-point type that most elements have: what the model computes in."""
    elements: dict[torch.dtype, int] = {}
    for _, tensor in _named_tensors(subject):
        if tensor.is_floating_point():
            elements[tensor.dtype] = elements.get(tensor.dtype, 0) + tensor.numel()
    return max(elements, key=lambda dtype: elements[dtype], default=torch.float32)


def _named_tensors(subject: Subject) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, buffers and inputs, each tensor once, a base before its views."""
    named: list[tuple[str, torch.Tensor]] = []
    # A method's module is copied with it.
    model = getattr(subject.model, "__self__", subject.model)
    if isinstance(model, torch.nn.Module):
        named += [(f"parameter {name}", tensor) for name, tensor in model.named_parameters()]
        named += [(f"buffer {name}", tensor) for name, tensor in model.named_buffers()]
    for name, leaf in _compat.named_leaves("input", subject.inputs):
        if isinstance(leaf, torch.Tensor):
            base = _compat.view_base(leaf)
            if base is not None:
                named.append((f"base of {name}", base))
            named.append((name, leaf))
    found: dict[int, tuple[str, torch.Tensor]] = {}
    # The name that the user knows wins over that of a base.
    for name, tensor in named:
        if id(tensor) not in found or found[id(tensor)][0].startswith("base of "):
            found[id(tensor)] = (name, tensor)
    return list(found.values())


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return all the memory behind a tensor, as one dimension."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))


class _TensorCopies:
    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._tensors: dict[int, torch.Tensor] = {}
        self._memory: dict[int, torch.Tensor] = {}

    def copy(self, original: torch.Tensor) -> torch.Tensor:
        if id(original) not in self._tensors:
            self._tensors[id(original)] = self._copied(original)
        return self._tensors[id(original)]

    def _copied(self, original: torch.Tensor) -> torch.Tensor:
        if original.layout is not torch.strided or _compat.is_subclass(original):
            clone = original.detach().clone()
            return clone.requires_grad_(original.requires_grad)
        geometry = original.size(), original.stride(), original.storage_offset()
        base = _compat.view_base(original)
        if base is not None and base.dtype == original.dtype and type(original) is torch.Tensor:
            # A view of a tensor that requires a gradient, and requires none itself, was taken under no_grad.
            with torch.set_grad_enabled(original.requires_grad or not base.requires_grad):
                return self.copy(base).as_strided(*geometry)
        with torch.no_grad():
            memory = self._copied_memory(original)
            copy_ = torch.empty(0, dtype=memory.dtype, device=memory.device)
            size, stride, offset = geometry
            copy_.set_(memory.untyped_storage(), offset, size, stride)
        if isinstance(original, torch.nn.Parameter):
            return torch.nn.Parameter(copy_, original.requires_grad)
        copy_.requires_grad_(original.requires_grad)
        return copy_ if original.is_leaf else copy_.view_as(copy_)

    def _copied_memory(self, original: torch.Tensor) -> torch.Tensor:
        """Return a copy of all the memory behind a tensor, as one dimension."""
        storage = original.untyped_storage()
        key = storage.data_ptr() or id(original)
        target = self._dtype if self._dtype and original.is_floating_point() else original.dtype
        if key not in self._memory:
            self._memory[key] = _flat(original).to(target, copy=True)
        memory = self._memory[key]
        if memory.dtype != target:
            if self._dtype is not None:
                raise Unconvertible
            # Without a conversion, two types may look at the same bytes.
            return memory.view(target)
        return memory
