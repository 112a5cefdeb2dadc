"""A small workload with dropout, and backends of every character, registered for one test."""

import pytest
import torch
from torch import nn

import aot_registry
from aot_core.protocol import Availability
from aot_registry.bench.contenders import Contender
from aot_registry.bench.workloads.workload import Workload

SEED = 20


def pytest_report_header():
    return f"bench: seed {SEED}"


@pytest.fixture
def workload():
    """A perceptron with dropout, on data that it can learn."""
    torch.manual_seed(SEED)
    inputs = torch.randn(6, 16, 5)
    return Workload(
        name="perceptron",
        model=nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 1)),
        batches=[(batch, batch.sum(dim=1, keepdim=True)) for batch in inputs],
        loss_fn=nn.functional.mse_loss,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    )


@pytest.fixture
def register():
    """Return a function that registers a backend until the test ends, and returns its contender."""
    names = []

    def register(backend, name):
        aot_registry.register_backend(backend, name=name)
        names.append(name)
        return Contender(name, Availability(True))

    yield register
    for name in names:
        aot_registry.unregister_backend(name)
    torch.compiler.reset()
