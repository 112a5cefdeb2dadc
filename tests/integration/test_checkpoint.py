"""``torch.utils.checkpoint`` with each backend: gradients are those of eager, and dropout is drawn again as it was.

A checkpoint lies inside what is compiled, where Dynamo traces it and the backend must honour it, or around it, where
compiled code is run a second time during the backward.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import aot_core
from installed_backends import TRAINING, assert_compiled

WIDTH = 8


class Block(nn.Module):
    """A residual block, checkpointed or not."""

    def __init__(self, **how) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.how = how

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.residual, x, **self.how) if self.how else self.residual(x)


def build(**how) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(Block(**how), Block(**how)).double()


def results(function, model: nn.Module) -> list[torch.Tensor]:
    """Return a loss, and its gradients by the input and by all parameters."""
    x = torch.randn(
        4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
    ).requires_grad_()
    loss = function(x).square().mean()
    loss.backward()
    return [loss.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.fixture(scope="module")
def expected():
    model = build()
    return results(model, model)


def save_products(context, op, *args, **kwargs):
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


HOW = {
    "non-reentrant": {"use_reentrant": False},
    "reentrant": {"use_reentrant": True},
    "selective": {
        "use_reentrant": False,
        "context_fn": functools.partial(create_selective_checkpoint_contexts, save_products),
    },
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.parametrize("backend", TRAINING)
def test_checkpoint_inside_what_is_compiled(backend, how, expected):
    torch.compiler.reset()
    model = build(**how)
    with aot_core.record_reports() as reports:
        found = results(torch.compile(model, backend=backend, fullgraph=True), model)
    assert_compiled(reports, backend)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("use_reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize("backend", TRAINING)
def test_checkpoint_around_what_is_compiled(backend, use_reentrant, expected):
    torch.compiler.reset()
    model = build()
    compiled = torch.compile(model, backend=backend)
    with aot_core.record_reports() as reports:
        found = results(lambda x: checkpoint(compiled, x, use_reentrant=use_reentrant), model)
    assert_compiled(reports, backend)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("place", "use_reentrant"), [("inside", False), ("around", True)])
@pytest.mark.parametrize("backend", TRAINING)
def test_dropout_is_recomputed_with_the_same_mask(backend, place, use_reentrant):
    """Where dropout follows a product with ``w``, the gradient by ``x`` times ``x`` is the output, mask included."""
    torch.compiler.reset()
    torch.manual_seed(5)
    x = torch.rand(64, WIDTH, dtype=torch.float64).add_(1).requires_grad_()
    w = torch.rand(WIDTH, dtype=torch.float64)

    def drop(x):
        return nn.functional.dropout(x * w, 0.5)

    compile_ = functools.partial(torch.compile, backend=backend)
    recompute = functools.partial(checkpoint, use_reentrant=use_reentrant)
    step = (
        compile_(lambda x: recompute(drop, x))
        if place == "inside"
        else functools.partial(recompute, compile_(drop))
    )
    with aot_core.record_reports() as reports:
        output = step(x)
        output.sum().backward()
    assert_compiled(reports, backend)
    assert 0.3 < (output == 0).double().mean() < 0.7
    torch.testing.assert_close(x.grad * x.detach(), output.detach())
