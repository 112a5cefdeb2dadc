from __future__ import annotations

import pytest
from scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_captured_graphs(scenario):
    scenario()
