from __future__ import annotations

import pytest

pytest_plugins = ["aot_core.testing.fixtures"]


@pytest.fixture
def quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans be found that keep their budgets, and not the cheapest ones, in a tenth of the time."""
    monkeypatch.setattr("aot_partition.memory.planner.default_evaluations", lambda problem: 24)
