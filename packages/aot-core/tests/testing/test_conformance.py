"""The backends of this package, and PyTorch's own, through the conformance kit."""

from __future__ import annotations

import pytest
import torch

from aot_core.debug import aot_core_eager, aot_inductor_debug
from aot_core.testing import all_checks, parametrize_backend_checks

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
}

INDUCTOR_DECOMPOSITIONS = {
    "eager_random_numbers": "the decomposition of dropout compares rand with p, where the kernel draws bits",
    "eager_generator_state": "the decomposition of dropout draws floats, which moves the generator further",
}

if torch.__version__.startswith("2.9."):
    INDUCTOR_DECOMPOSITIONS["input_slice"] = (
        "torch 2.9's decomposition of index_fill leaves a copy_ in the graph"
    )


@parametrize_backend_checks(aot_core_eager, expected_failures=AOT_AUTOGRAD)
def test_aot_core_eager(check):
    check()


@parametrize_backend_checks(aot_inductor_debug, expected_failures=AOT_AUTOGRAD | INDUCTOR_DECOMPOSITIONS)
def test_aot_inductor_debug(check):
    check()


# Checkpointed dropout is recomputed with another mask by torch 2.13's "eager", and not by 2.10's.
@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [check for check in all_checks() if check.name != "checkpointed_dropout"], ids=lambda c: c.name
)
def test_dynamo_alone_passes(check):
    """What fails here would be the fault of Dynamo, not of a backend."""
    check.run("eager")
