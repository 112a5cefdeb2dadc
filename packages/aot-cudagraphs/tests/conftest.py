from __future__ import annotations

import os
import random

import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed every test, and print the seed where the test fails."""
    value = int(os.environ.get("AOT_TEST_SEED", random.SystemRandom().randrange(2**31)))
    torch.manual_seed(value)
    print(f"AOT_TEST_SEED={value}")
    return value
