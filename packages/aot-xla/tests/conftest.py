from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch
from fake_device import FakeDevice

import aot_core
from aot_xla import _compat


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed every test, and print the seed where the test fails."""
    value = int(os.environ.get("AOT_TEST_SEED", random.SystemRandom().randrange(2**31)))
    torch.manual_seed(value)
    print(f"AOT_TEST_SEED={value}")
    return value


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """No compiled code of one test is there in the next."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def reports() -> Iterator[list[aot_core.CompileReport]]:
    """The reports of all compiles of the test."""
    with aot_core.record_reports() as recorded:
        yield recorded


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A device that stands for XLA's in everything that is compiled in this test."""
    device = FakeDevice()
    monkeypatch.setattr(_compat, "open_device", lambda: device)
    return device
