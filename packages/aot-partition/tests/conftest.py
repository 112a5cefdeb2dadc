from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """Seed every test, and print the seed where the test fails."""
    value = int(os.environ.get("AOT_TEST_SEED", random.SystemRandom().randrange(2**31)))
    torch.manual_seed(value)
    print(f"AOT_TEST_SEED={value}")
    return value


@pytest.fixture
def quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans be found that keep their budgets, and not the cheapest ones, in a tenth of the time."""
    monkeypatch.setattr("aot_partition.memory.planner.default_evaluations", lambda problem: 24)


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """No compiled code and no option of one test is there in the next."""
    torch.compiler.reset()
    kept = {name: value for name, value in os.environ.items() if name.startswith("AOT_")}
    yield
    for name in [name for name in os.environ if name.startswith("AOT_") and name not in kept]:
        del os.environ[name]
    torch.compiler.reset()
