"""Tests of the executor ``nvfuser``. Those on nvFuser itself are run by `nox -s nvfuser`, and left out elsewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HAS_NVFUSER = importlib.util.find_spec("nvfuser_direct") is not None

needs_nvfuser = pytest.mark.skipif(not HAS_NVFUSER, reason="waits for nvFuser: nox -s nvfuser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("nvfuser") is not None:
            item.add_marker(needs_nvfuser)
