"""Which tensors share memory: among inputs, among outputs, between them, and between calls.

That two tensors share memory is observed as a user would: by writing through one and reading the other.
"""

from __future__ import annotations

from typing import Any

import torch

from aot_core.testing.check import check
from aot_core.testing.subject import Subject


def _shares_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@check()
def duplicate_inputs(subject: Subject) -> Any:
    """One tensor passed twice: a write through one argument is read through the other."""
    x = subject.arange(4)

    def write_then_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    run = subject.compile(write_then_read)
    return {"distinct": run(subject.arange(4), subject.arange(4)), "same": run(x, x), "input": x}


@check()
def duplicate_inputs_in_training(subject: Subject) -> Any:
    """One tensor passed twice gets the sum of both gradients."""
    x = subject.randn(4, grad=True)

    def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.sin() * b.exp()

    subject.compile(mix)(x, x).sum().backward()
    return {"input.grad": x.grad}


@check()
def overlapping_inputs(subject: Subject) -> Any:
    """Two inputs that overlap in memory: a write through one is read through the other."""
    base = subject.arange(6)

    def write_then_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(10)
        return b + 1

    out = subject.compile(write_then_read)(base[:4], base[2:])
    return {"out": out, "base": base}


@check()
def overlap_changes_between_calls(subject: Subject) -> Any:
    """Inputs that overlap in one call and not in the next, or elsewhere, are told apart."""

    def write_then_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(10)
        return b + 1

    run = subject.compile(write_then_read)
    outputs = []
    for first, second in ((slice(0, 3), slice(3, 6)), (slice(0, 3), slice(2, 5)), (slice(2, 5), slice(1, 4))):
        base = subject.arange(6)
        outputs += [run(base[first], base[second]), base]
    return {"outputs": outputs}


@check()
def input_and_its_view(subject: Subject) -> Any:
    """A tensor and a view of it in another shape: writes through either are read through the other."""
    x = subject.arange(2, 3)

    def write_both(x: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        flat[2:].mul_(10)
        return x + flat.view(2, 3)

    return {"out": subject.compile(write_both)(x, x.view(-1)), "input": x}


@check()
def output_is_input(subject: Subject) -> Any:
    """An in-place operation's result returned by the model is the caller's own tensor."""
    x = subject.arange(3)

    def increment(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    out = subject.compile(increment)(x)
    out.mul_(10)
    return {"is input": out is x, "input": x}


@check()
def output_views_input(subject: Subject) -> Any:
    """An output that is a view of an input stays one: writes go through in both directions."""
    x = subject.arange(2, 3)

    def tail(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)[2:]

    out = subject.compile(tail)(x)
    out[0] = 50
    x[1, 2] = 70
    return {"shares": _shares_storage(out, x), "out": out, "input": x, "offset": out.storage_offset()}


@check()
def output_views_input_in_training(subject: Subject) -> Any:
    """An output that is a view of an input passes gradients, also after a write through it."""
    leaf = subject.randn(2, 3, grad=True)
    x = leaf * 1

    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)

    out = subject.compile(flat)(x)
    out.mul_(2)
    x.square().sum().backward()  # type: ignore[no-untyped-call]
    return {"input": x, "leaf.grad": leaf.grad}


@check()
def outputs_alias_each_other(subject: Subject) -> Any:
    """Outputs that share memory in eager do so when compiled."""

    def whole_and_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.t()[1:]

    whole, part = subject.compile(whole_and_part)(subject.arange(2, 3))
    part.fill_(-1)
    return {"shares": _shares_storage(whole, part), "whole": whole, "part": part}


@check()
def outputs_alias_in_training(subject: Subject) -> Any:
    """Outputs that are views of one intermediate pass the sum of their gradients."""
    x = subject.randn(2, 3, grad=True)

    def whole_and_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y, y.view(-1)[:2]

    whole, part = subject.compile(whole_and_part)(x)
    (whole.sum() + 5 * part.square().sum()).backward()
    return {"shares": _shares_storage(whole, part), "input.grad": x.grad}


@check()
def view_of_intermediate(subject: Subject) -> Any:
    """An output that is a view of an intermediate may be written in place before backward."""
    x = subject.randn(2, 3, grad=True)

    def flat(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).view(-1)

    out = subject.compile(flat)(x)
    out.mul_(3)
    out.sum().backward()
    return {"out": out, "input.grad": x.grad}


@check()
def copies_stay_copies(subject: Subject) -> Any:
    """Outputs that eager computes into memory of their own never share the input's."""
    x = subject.arange(4)

    def copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clone(), x + 0, x * 1, torch.cat([x])

    outputs = subject.compile(copies)(x)
    for out in outputs:
        out.fill_(-1)
    return {"input": x, "outputs": outputs}


@check()
def outputs_survive_next_call(subject: Subject) -> Any:
    """The result of a call is not overwritten by the next one."""
    run = subject.compile(lambda x: x * 2 + 1)
    outputs = [run(subject.arange(3) + step) for step in range(3)]
    return {"outputs": outputs}


@check()
def gradients_survive_next_call(subject: Subject) -> Any:
    """The gradient of a call is not overwritten by the next one's."""
    run = subject.compile(torch.sin)
    kept = []
    for _ in range(3):
        x = subject.randn(3, grad=True)
        kept.append(torch.autograd.grad(run(x).sum(), x)[0])
    return {"gradients": kept}


@check()
def constants_are_fresh(subject: Subject) -> Any:
    """A tensor that the model creates is a new one in every call, whatever was written to the last."""

    def constant(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(3, device=x.device), x + 1

    run = subject.compile(constant)
    for _ in range(2):
        out, _ = run(subject.arange(2))
        out.mul_(5)
        again, _ = run(subject.arange(2))
    return {"again": again}
