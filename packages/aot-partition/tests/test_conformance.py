"""``aot_mem_efficient`` through the conformance kit: without a budget, and at several."""

from __future__ import annotations

import json

import pytest

from aot_core.testing import parametrize_backend_checks
from aot_partition.backends import aot_mem_efficient

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
}

OPTIONS = "AOT_MEM_EFFICIENT_OPTIONS"


@parametrize_backend_checks(aot_mem_efficient, expected_failures=AOT_AUTOGRAD)
def test_without_a_budget(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_mem_efficient, expected_failures=AOT_AUTOGRAD)
def test_at_the_unplanned_peak(check, monkeypatch):
    monkeypatch.setenv(OPTIONS, json.dumps({"budget": 1.0}))
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_mem_efficient, expected_failures=AOT_AUTOGRAD)
def test_at_half_of_it(check, monkeypatch):
    monkeypatch.setenv(OPTIONS, json.dumps({"budget": 0.5}))
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_mem_efficient, expected_failures=AOT_AUTOGRAD)
def test_at_the_smallest_peak(check, monkeypatch):
    monkeypatch.setenv(OPTIONS, json.dumps({"budget": "minimum"}))
    check()
