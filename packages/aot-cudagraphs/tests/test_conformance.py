"""The backend through the conformance kit: captured on the simulator, and on CPU tensors as they are."""

from __future__ import annotations

import random

import pytest

from aot_core.testing import all_checks, parametrize_backend_checks
from aot_cudagraphs import aot_cudagraphs

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
}
SEED = 20
SAMPLE = random.Random(SEED).sample([check for check in all_checks() if check.name not in AOT_AUTOGRAD], 20)


@parametrize_backend_checks(
    aot_cudagraphs, options={"capture": "simulated", "warmup": 0}, expected_failures=AOT_AUTOGRAD
)
def test_captured_at_once(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(
    aot_cudagraphs,
    options={"capture": "simulated", "warmup": 0, "outputs": "pool"},
    expected_failures=AOT_AUTOGRAD,
)
def test_outputs_of_the_pool(check):
    check()


@pytest.mark.sweep
@parametrize_backend_checks(aot_cudagraphs, expected_failures=AOT_AUTOGRAD)
def test_as_it_is(check):
    check()


@pytest.mark.parametrize("check", SAMPLE, ids=lambda check: check.name)
def test_some_as_they_are(check):
    print(f"sample of seed {SEED}")
    check.run(aot_cudagraphs)
