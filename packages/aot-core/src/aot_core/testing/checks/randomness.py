"""Random numbers: repeatable from a seed, fresh otherwise, the same forwards and backwards.

A backend is free to draw other numbers than eager does, unless it claims the capabilities that say otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from aot_core.testing.check import check
from aot_core.testing.subject import Subject


def _drop(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5)


def _ones(subject: Subject, *, grad: bool = False) -> torch.Tensor:
    # 64 elements: that two independent masks agree has probability 2**-64.
    ones: torch.Tensor = subject.place(torch.ones(64))
    return ones.requires_grad_(grad)


def _generator_state(subject: Subject) -> torch.Tensor:
    if subject.device.type == "cuda":
        return torch.cuda.get_rng_state(subject.device)
    return torch.get_rng_state()


@check()
def dropout_repeats_from_seed(subject: Subject) -> Any:
    """The same seed gives the same dropout mask, in the call that compiles and in later ones."""
    run = subject.compile(_drop)
    masks = []
    for _ in range(3):
        torch.manual_seed(7)
        masks.append(run(_ones(subject)))
    assert torch.equal(masks[0], masks[1]), "the call that compiled drew another mask than the next one"
    assert torch.equal(masks[1], masks[2]), "two calls from one seed drew different masks"


@check()
def dropout_is_fresh(subject: Subject) -> Any:
    """Every call draws another dropout mask, of values 0 and 1 / (1 - p)."""
    run = subject.compile(_drop)
    masks = [run(_ones(subject)) for _ in range(3)]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert not torch.equal(masks[first], masks[second]), f"calls {first} and {second} drew one mask"
    return {"values": [mask.unique() for mask in masks]}


@check()
def dropout_gradient(subject: Subject) -> Any:
    """The gradient passes where the forward's dropout mask let the value pass."""
    run = subject.compile(_drop)
    for _ in range(2):
        x = _ones(subject, grad=True)
        out = run(x)
        torch.rand(5, device=subject.device)  # between forward and backward others may draw
        out.sum().backward()
        assert x.grad is not None, "no gradient reached the input"
        assert torch.equal(x.grad, out.detach()), "the gradient was masked by another mask than the output"


@check()
def checkpointed_dropout(subject: Subject) -> Any:
    """Activation checkpointing recomputes dropout with the mask of the forward."""

    def model(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(lambda x: _drop(x).square(), x, use_reentrant=False)
        return out

    x = _ones(subject, grad=True)
    out = subject.compile(model)(x)
    torch.rand(5, device=subject.device)
    out.sum().backward()
    # The output is (2 x)**2 where the mask let x pass, its derivative 8 x.
    assert x.grad is not None, "no gradient reached the input"
    assert torch.equal(x.grad, 2 * out.detach()), "the recomputed mask is not the forward's"


@check()
def dropout_off_in_eval(subject: Subject) -> Any:
    """Switching a compiled model to eval turns dropout off, and back to train on again."""
    model = nn.Dropout(0.5)
    run = subject.compile(model)
    x = _ones(subject)
    dropped = run(x)
    model.eval()
    kept = run(x)
    model.train()
    again = run(x)
    assert (dropped == 0).any(), "dropout in training dropped nothing"
    assert (again == 0).any(), "after eval and train, dropout dropped nothing"
    return {"kept": kept}


@check()
def random_tensors(subject: Subject) -> Any:
    """Tensors drawn inside the model have eager's dtype, shape and range, and are fresh in every call."""

    def draw(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.rand_like(x),
            torch.randint(3, 9, (64,), device=x.device),
            torch.bernoulli(torch.full_like(x, 0.5)),
            torch.randperm(64, device=x.device),
        )

    run = subject.compile(draw)
    first, second = run(_ones(subject)), run(_ones(subject))
    for a, b in zip(first, second, strict=True):
        assert not torch.equal(a, b), f"two calls drew the same numbers: {a}"
    uniform, whole, coin, order = first
    assert ((uniform >= 0) & (uniform < 1)).all(), f"rand_like gave {uniform}"
    assert ((whole >= 3) & (whole < 9)).all(), f"randint(3, 9) gave {whole}"
    return {"coin": coin.unique(), "order": order.sort().values, "dtypes": [str(t.dtype) for t in first]}


@check()
def generator_untouched(subject: Subject) -> Any:
    """Compiling and running a model that draws nothing leaves the random generator alone."""
    x = subject.randn(4, grad=True)
    before = _generator_state(subject)
    subject.compile(torch.sin)(x).sum().backward()
    assert torch.equal(before, _generator_state(subject)), "the random generator moved"


@check()
def generator_advances(subject: Subject) -> Any:
    """After a seed, call by call the generator goes through the same states again."""
    run = subject.compile(_drop)
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        states = [_generator_state(subject)]
        for _ in range(2):
            run(_ones(subject))
            states.append(_generator_state(subject))
        runs.append(states)
    for step, (first, second) in enumerate(zip(*runs, strict=True)):
        assert torch.equal(first, second), f"after {step} calls from one seed the generator's states differ"
    assert not torch.equal(runs[0][0], runs[0][1]), "a dropout did not advance the generator"


@check(exact=True)
def eager_random_numbers(subject: Subject) -> Any:
    """The numbers drawn are the very ones that eager draws from the same seed."""
    run = subject.compile(_drop)
    torch.manual_seed(11)
    return {"masks": [run(_ones(subject)) for _ in range(3)]}


@check()
def eager_generator_state(subject: Subject) -> Any:
    """After a model that draws, the generator stands where eager leaves it."""
    run = subject.compile(_drop)
    torch.manual_seed(11)
    run(_ones(subject, grad=True)).sum().backward()
    return {"state": _generator_state(subject)}
