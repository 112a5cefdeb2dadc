"""Tests on torch_xla itself: `nox -s xla` runs them. Elsewhere they are left out."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

THERE = importlib.util.find_spec("torch_xla") is not None
os.environ.setdefault("PJRT_DEVICE", "CPU")

if THERE:
    import torch_xla

    # Autograd counts the devices at the first backward of a process. One that comes later has no queue.
    torch_xla.device()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skipif(not THERE, reason="waits for torch_xla: nox -s xla"))


@pytest.fixture(params=["cpu", "xla"])
def placement(request: pytest.FixtureRequest) -> torch.device:
    """Where the model lives."""
    return torch.device("cpu") if request.param == "cpu" else torch_xla.device()


@pytest.fixture
def executions() -> Iterator[object]:
    """A function that returns how many computations XLA has run, by its own account."""
    from torch_xla.debug import metrics

    def count() -> int:
        torch_xla.sync(wait=True)
        found = metrics.metric_data("ExecuteTime")
        return found[0] if found else 0

    return count
