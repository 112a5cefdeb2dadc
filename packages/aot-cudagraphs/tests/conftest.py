from __future__ import annotations

import os
import random

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the conformance kit last.

    Its second derivatives leave gradients and their graph referring to each other, which Python's collector does
    not see through, and other tests count all captured graphs of the process.
    """
    items.sort(key=lambda item: item.path.stem == "test_conformance")


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed every test, and print the seed where the test fails."""
    value = int(os.environ.get("AOT_TEST_SEED", random.SystemRandom().randrange(2**31)))
    torch.manual_seed(value)
    print(f"AOT_TEST_SEED={value}")
    return value
