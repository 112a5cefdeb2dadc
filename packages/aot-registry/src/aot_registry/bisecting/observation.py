"""What can be seen of one run of a model: everything that a compiled model must share with eager's."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch

from aot_registry import _compat
from aot_registry.bench.rng import isolated_rng
from aot_registry.bench.workloads.workload import call_model
from aot_registry.bisecting.copies import Subject, copied

__all__ = ["Call", "Observation", "Quantity", "memory_of", "observe", "observe_in_float64", "random_state"]

Call = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns what is called in a model's place: the model itself, or what ``torch.compile`` makes of it."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One value of a run.

    Args:
        kind: ``"output"``, ``"loss"``, ``"random state"``, ``"written"`` (a parameter, buffer or input after the
            call) or ``"gradient"``.
        value: A copy of the tensor; for what is no tensor, the value itself.
        stride: The tensor's strides, without dimensions of at most one element, for which they mean nothing;
            None where they don't count.
        requires_grad: Of an output.
        shares: Names of inputs, parameters, buffers and other outputs in whose memory an output lies.
    """

    kind: str
    value: Any
    stride: tuple[int, ...] | None = None
    requires_grad: bool = False
    shares: tuple[str, ...] = ()


Observation = dict[str, Quantity]
"""Quantities by name, in the order in which they come about."""


def observe(subject: Subject, call: Call, *, seed: int, dtype: torch.dtype | None = None) -> Observation:
    """Run a copy of a subject forward and, where a gradient is required, backward.

    Args:
        subject: What to run; it stays as it is.
        call: Says how.
        seed: Of all random numbers, and of the cotangents.
        dtype: See `copied`.

    Raises:
        Exception: whatever the run raises.
    """
    with isolated_rng(seed), warnings.catch_warnings():
        # Compiling makes torch itself warn; the model's own warnings come as often as there are runs.
        warnings.simplefilter("ignore")
        copy, named = copied(subject, dtype)
        output = call_model(call(copy.model), copy.inputs)
        seen = _observe_output(output, named)
        seen["random state"] = Quantity("random state", random_state())
        roots, cotangents = _backward_roots(copy, output, seen, seed)
        if roots:
            torch.autograd.backward(roots, cotangents)
            seen["random state after backward"] = Quantity("random state", random_state())
        for name, tensor in named:
            seen[name] = Quantity("written", _kept(tensor), _stride(tensor))
        for name, tensor in named:
            if tensor.is_leaf and tensor.requires_grad:
                gradient = tensor.grad
                seen[f"gradient of {name}"] = Quantity(
                    "gradient", None if gradient is None else _kept(gradient)
                )
    return seen


def observe_in_float64(subject: Subject, *, seed: int, drawn_as: torch.dtype) -> Observation:
    """Run a subject in eager with float64 parameters and inputs: a run whose rounding errors are negligible.

    Random numbers are drawn in the type of the model and widened, so that dropout drops the same elements.

    Args:
        subject: What to run.
        seed: As for `observe`.
        drawn_as: The type of the model.
    """
    default = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_compat.random_numbers_drawn_as(drawn_as, default))
        stack.callback(torch.set_default_dtype, default)
        torch.set_default_dtype(torch.float64)
        return observe(subject, lambda model: model, seed=seed, dtype=torch.float64)


def _observe_output(output: Any, named: list[tuple[str, torch.Tensor]]) -> Observation:
    leaves = _compat.named_leaves("output", output)
    tensors = [*named, *((name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor))]
    memory = {name: memory_of(tensor) for name, tensor in tensors}
    seen: Observation = {"structure": Quantity("output", tuple(name for name, _ in leaves))}
    for name, leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            seen[name] = Quantity("output", leaf)
            continue
        place = memory[name]
        shares = tuple(
            other for other in memory if other != name and place is not None and memory[other] == place
        )
        seen[name] = Quantity("output", _kept(leaf), _stride(leaf), leaf.requires_grad, shares)
    return seen


def _backward_roots(
    subject: Subject, output: Any, seen: Observation, seed: int
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Return where the backward starts, and with which gradients."""
    if subject.loss_fn is not None:
        loss = subject.loss_fn(output, subject.target)
        seen["loss"] = Quantity("loss", _kept(loss))
        return ([loss], [None]) if loss.requires_grad else ([], [])
    roots = [
        leaf
        for _, leaf in _compat.named_leaves("output", output)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    generator = torch.Generator().manual_seed(seed)
    # In one precision for all runs: those drawn in another would be other numbers.
    drawn = [
        torch.randn(
            root.shape, generator=generator, dtype=torch.complex64 if root.is_complex() else torch.float32
        )
        for root in roots
    ]
    return roots, [draw.to(root) for draw, root in zip(drawn, roots, strict=True)]


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _stride(tensor: torch.Tensor) -> tuple[int, ...] | None:
    if tensor.layout is not torch.strided:
        return None
    return tuple(stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True) if size > 1)


def memory_of(tensor: torch.Tensor) -> int | None:
    """Return where the memory of a tensor begins; None if it has none to look at."""
    if tensor.layout is not torch.strided or _compat.is_subclass(tensor):
        return None
    return tensor.untyped_storage().data_ptr() or None


def random_state() -> torch.Tensor:
    """Return the state of torch's generators: the CPU's, and those of CUDA devices in use."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return torch.cat([state.cpu() for state in states])
