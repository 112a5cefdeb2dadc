"""The backends through the conformance kit."""

from __future__ import annotations

import json
import random

import pytest

from aot_core.testing import all_checks, parametrize_backend_checks
from aot_ts_fusion.backends import aot_ts_fusion, aot_ts_nnc, aot_ts_nvfuser, aot_ts_nvfuser_nodecomps

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
}
SEED = 7


def sample(count):
    return random.Random(SEED).sample(
        [check for check in all_checks() if check.name not in AOT_AUTOGRAD], count
    )


@parametrize_backend_checks(aot_ts_fusion, expected_failures=AOT_AUTOGRAD)
def test_torchscript(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_ts_nvfuser, expected_failures=AOT_AUTOGRAD)
def test_nvfuser(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_ts_nvfuser_nodecomps, expected_failures=AOT_AUTOGRAD)
def test_nvfuser_nodecomps(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_ts_nnc, expected_failures=AOT_AUTOGRAD)
def test_nnc(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_ts_nvfuser, expected_failures=AOT_AUTOGRAD)
def test_regions_by_aten(check, monkeypatch):
    monkeypatch.setenv("AOT_TS_NVFUSER_OPTIONS", json.dumps({"executor": "aten"}))
    check()


@pytest.mark.parametrize(
    "backend", [aot_ts_nvfuser, aot_ts_nvfuser_nodecomps, aot_ts_nnc], ids=lambda each: each.name
)
@pytest.mark.parametrize("check", sample(12), ids=lambda check: check.name)
def test_some_of_the_others(backend, check):
    print(f"sample of seed {SEED}")
    check.run(backend)
