"""Two processes under torchrun: DDP and FSDP2 training through each backend gives the losses of eager.

The reference is the same model trained whole, in one process, on the same batches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aot_core.protocol import CompileReport
from installed_backends import TRAINING, UNUSABLE, assert_compiled, assert_refused

WORKER = Path(__file__).with_name("distributed_training.py")


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def runs(request, tmp_path_factory):
    """Start both processes once per strategy; they go through all backends."""
    results = tmp_path_factory.mktemp(request.param) / "results.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.run(
        [*launcher, str(WORKER), request.param, str(results), *TRAINING, *UNUSABLE],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(results.read_text())


def test_reference_learns(runs):
    losses = runs["reference"]["losses"]
    assert losses[-1] != pytest.approx(losses[0], rel=1e-2), "a model that does not move proves nothing"


@pytest.mark.parametrize("backend", TRAINING)
def test_losses_are_those_of_eager(runs, backend):
    assert runs[backend]["losses"] == pytest.approx(runs["reference"]["losses"], rel=1e-9)


@pytest.mark.parametrize("backend", TRAINING)
def test_model_was_compiled(runs, backend, request):
    reports = [CompileReport(**report) for report in runs[backend]["reports"]]
    assert_compiled(reports, backend)
    if request.node.callspec.params["runs"] == "ddp":
        assert len(reports) > 1, "DDP had one bucket, so that nothing was cut"


@pytest.mark.parametrize("backend", UNUSABLE)
def test_backend_that_cannot_run_here_says_why(runs, backend):
    assert_refused(runs[backend]["error"], backend)
