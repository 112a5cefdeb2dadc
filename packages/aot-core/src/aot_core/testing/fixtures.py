"""A pytest plugin with the fixtures that tests of a backend start from.

Named in a project's top ``conftest.py``::

    pytest_plugins = ["aot_core.testing.fixtures"]

`seed` and `clean_process` are there for every test; `reports` is for those that name it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch

from aot_core import safety
from aot_core.protocol import CompileReport
from aot_core.report import record_reports

__all__ = ["clean_process", "reports", "seed"]


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed the test, by ``AOT_TEST_SEED`` if that is set, and print the seed where the test fails."""
    value = int(os.environ.get("AOT_TEST_SEED", random.SystemRandom().randrange(2**31)))
    torch.manual_seed(value)
    print(f"AOT_TEST_SEED={value}")  # noqa: T201  pytest shows it where the test fails
    return value


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """No compiled code, no option ``AOT_…`` and no warning given once is there in the next test."""
    torch.compiler.reset()
    safety.forget_warnings()
    kept = {name: value for name, value in os.environ.items() if name.startswith("AOT_")}
    yield
    for name in [name for name in os.environ if name.startswith("AOT_") and name not in kept]:
        del os.environ[name]
    os.environ.update(kept)
    torch.compiler.reset()


@pytest.fixture
def reports() -> Iterator[list[CompileReport]]:
    """The reports of all compiles of the test."""
    with record_reports() as recorded:
        yield recorded
