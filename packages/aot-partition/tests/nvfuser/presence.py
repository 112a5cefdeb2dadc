"""What is installed: tests on nvFuser itself are run by `nox -s nvfuser`, and left out elsewhere."""

from __future__ import annotations

import importlib.util

import pytest

HAS_NVFUSER = importlib.util.find_spec("nvfuser_direct") is not None

needs_nvfuser = pytest.mark.skipif(not HAS_NVFUSER, reason="waits for nvFuser: nox -s nvfuser")
