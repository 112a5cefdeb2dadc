"""Kernels for devices that are not there: nvFuser schedules, generates code and compiles it."""

from __future__ import annotations

from pathlib import Path

import fake_cuda
import pytest
from presence import needs_nvfuser

pytestmark = [
    needs_nvfuser,
    pytest.mark.slow,
    pytest.mark.skipif(
        fake_cuda.compiler() is None or fake_cuda.headers() is None,
        reason="waits for a C compiler and the headers of the CUDA runtime",
    ),
]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("sm", [80, 90, 100])
def test_a_block_is_trained(sm):
    """Forward and backward of a transformer block, through torch.compile and the backend."""
    done = fake_cuda.run(sm, str(PROGRAMS / "train_block.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"imaginary sm_{sm}" in done.stdout
    assert "0 regions left to ATen" in done.stdout


def test_indexing_stands_between_arithmetic():
    """Alone, each is compiled; what nvFuser can't put in order is seen in company."""
    done = fake_cuda.run(90, str(PROGRAMS / "chains.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " chains, 0 not compiled" in done.stdout, done.stdout


def test_dimensions_of_size_1_are_normalized_over():
    done = fake_cuda.run(90, str(PROGRAMS / "normalizations.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " normalizations, 0 not compiled" in done.stdout, done.stdout


def test_a_fusion_that_can_not_be_compiled_is_noticed():
    """The check can fail: nvFuser refuses to reshape to another number of elements."""
    done = fake_cuda.run(90, str(PROGRAMS / "refused_fusion.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused" in done.stdout
