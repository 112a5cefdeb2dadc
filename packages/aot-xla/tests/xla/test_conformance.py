"""The conformance kit on XLA, for models that live on the CPU."""

from __future__ import annotations

import pytest

from aot_core.testing import all_checks, parametrize_backend_checks

EXPECTED = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
    "eager_random_numbers": "XLA's generator is another than the CPU's: the same seed gives other numbers",
    "eager_generator_state": "each call takes one number from torch's generator, however many XLA draws",
    "error_in_operation": "XLA checks no index: one out of range is clamped, on every device of XLA's",
}


@parametrize_backend_checks("aot_torchxla_trace_once", expected_failures=EXPECTED)
def test_trace_once(check):
    check()


@parametrize_backend_checks("aot_torchxla_trivial", expected_failures=EXPECTED)
def test_trivial(check):
    check()


FORWARD_ONLY = [
    "dropout_is_fresh",
    "noncontiguous_input",
    "batch_of_one",
    "special_values",
    "integers",
    "closure_variables",
]


@pytest.mark.parametrize("backend", ["torchxla_trace_once", "torchxla_trivial"])
@pytest.mark.parametrize(
    "check", [check for check in all_checks() if check.name in FORWARD_ONLY], ids=lambda check: check.name
)
def test_inference_backends(check, backend):
    check.run(backend)
