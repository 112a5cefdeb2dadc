"""The backend through the conformance kit: captured on the simulator, and on CPU tensors as they are."""

from __future__ import annotations

from aot_core.testing import parametrize_backend_checks
from aot_cudagraphs import aot_cudagraphs

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
    "unused_output_gives_no_gradient": "AOTAutograd's one backward gives every input a gradient, here zeros",
}


@parametrize_backend_checks(
    aot_cudagraphs, options={"capture": "simulated", "warmup": 0}, expected_failures=AOT_AUTOGRAD
)
def test_captured_at_once(check):
    check()


@parametrize_backend_checks(aot_cudagraphs, expected_failures=AOT_AUTOGRAD)
def test_as_it_is(check):
    check()
