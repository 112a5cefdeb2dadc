"""Whole training steps under ``torch.compile``: losses and gradients of eager, and a peak within the budget."""

from __future__ import annotations

import copy

import pytest
import torch
from memory_cases import Convolutional, Transformer
from torch import nn

import aot_core
from aot_partition.backends import aot_mem_efficient
from aot_partition.memory.measure import trace_allocations

# Gradients and budgets are the same matter however good a plan is.
pytestmark = pytest.mark.usefixtures("quick_search")

MODELS = {
    "dropout": lambda: (Transformer(2, dropout=0.2), torch.randn(16, 16, 32)),
    "convolutional": lambda: (Convolutional(4), torch.randn(8, 3, 16, 16)),
}


class RandomNumbers(nn.Module):
    """Every way to draw numbers that gradients depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x)) * torch.rand_like(x)
        x = torch.sigmoid(self.second(x)) * torch.bernoulli(torch.full_like(x, 0.5))
        x = torch.exp(x + torch.normal(torch.zeros_like(x), torch.ones_like(x)))
        chosen = torch.multinomial(torch.softmax(x.detach(), -1), 4)
        return (nn.functional.dropout(x, 0.3) * x.sin()).gather(1, chosen).mean()


def train(function, model, x, *, steps=1):
    """Return losses and gradients; every step draws from the same state."""
    losses = []
    for _ in range(steps):
        model.zero_grad(set_to_none=True)
        torch.manual_seed(11)
        loss = function(x)
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.2, 0.1, "minimum"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_eagers_at_every_budget(name, budget):
    model, x = MODELS[name]()
    check_gradients(model, x, budget)


@pytest.mark.parametrize("budget", [0.7, "minimum"])
def test_random_numbers_are_not_drawn_anew(budget):
    check_gradients(RandomNumbers(), torch.randn(64, 32), budget)


def check_gradients(model, x, budget):
    reference, planned = copy.deepcopy(model), copy.deepcopy(model)
    expected, gradients = train(reference, reference, x)
    compiled = torch.compile(planned, backend=aot_mem_efficient, options={"budget": budget})
    losses, found = train(compiled, planned, x)
    assert torch.equal(losses[0], expected[0])
    for one, other in zip(found, gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_the_measured_peak_is_within_the_budget(name):
    model, x = MODELS[name]()
    with aot_core.record_reports() as reports:
        compiled = torch.compile(model, backend=aot_mem_efficient, options={"budget": 0.5})
        train(compiled, model, x)
    assert [report.status for report in reports] == ["ok"]
    model.zero_grad(set_to_none=True)
    with trace_allocations() as trace:
        compiled(x).backward()
    torch.compiler.reset()
    model.zero_grad(set_to_none=True)
    whole = torch.compile(model, backend=aot_mem_efficient, options={"budget": 1.0})
    train(whole, model, x)
    model.zero_grad(set_to_none=True)
    with trace_allocations() as unplanned:
        whole(x).backward()
    assert trace.peak <= 0.505 * unplanned.peak
