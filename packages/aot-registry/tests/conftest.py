from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_site import FakeSite, isolated_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FakeSite]:
    """An empty site of fakes, for one test."""
    with isolated_site(tmp_path) as site:
        yield site
