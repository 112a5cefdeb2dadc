from __future__ import annotations

import pytest
from fake_device import FakeDevice

from aot_xla import _compat

pytest_plugins = ["aot_core.testing.fixtures"]


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A device that stands for XLA's in everything that is compiled in this test."""
    device = FakeDevice()
    monkeypatch.setattr(_compat, "open_device", lambda: device)
    return device
