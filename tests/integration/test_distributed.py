"""Two processes under torchrun: DDP and FSDP2 training through each backend gives the losses of eager.

The reference is the same model trained whole, in one process, on the same batches.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aot_core.protocol

WORKER = Path(__file__).with_name("distributed_training.py")


def training_backends() -> list[str]:
    """Return every installed backend that trains on a CPU. A new package joins by being installed."""
    infos: list[aot_core.protocol.BackendInfo] = [
        entry.load() for entry in importlib.metadata.entry_points(group="aot_backends")
    ]
    return sorted(info.name for info in infos if {"training", "cpu"} <= set(info.tags))


BACKENDS = training_backends()


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def runs(request, tmp_path_factory):
    """Start both processes once per strategy; they go through all backends."""
    results = tmp_path_factory.mktemp(request.param) / "results.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.run(
        [*launcher, str(WORKER), request.param, str(results), *BACKENDS],
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_are_those_of_eager(runs, backend):
    assert runs[backend]["losses"] == pytest.approx(runs["reference"]["losses"], rel=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_model_was_compiled(runs, backend):
    reports = runs[backend]["reports"]
    assert reports, "no graph reached the backend: it was eager that gave these losses"
    assert {report["backend"] for report in reports} == {backend}
    assert [report["decisions"] for report in reports if report["status"] != "ok"] == []
    assert any("backward" in report["stages"] for report in reports)
