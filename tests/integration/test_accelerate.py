"""accelerate: the backends of ours that it lists, from code and from a config file; and all others, compiled before.

accelerate takes names of an enumeration of its own alone. The ones in it that are ours are asked for here by looking.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
from torch import nn

import aot_core
import aot_registry
from aot_core.protocol import CompileReport
from installed_backends import DECLARED, TRAINING, UNUSABLE, assert_compiled, assert_refused

LISTED = {backend.value.lower() for backend in DynamoBackend}
OURS = sorted(LISTED & DECLARED.keys())
TAKEN_OVER = sorted(LISTED & {info.overrides for info in DECLARED.values() if info.overrides})
COMMAND = shutil.which("accelerate", path=str(Path(sys.executable).parent))

CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
dynamo_config:
  dynamo_backend: {name}
mixed_precision: 'no'
num_machines: 1
num_processes: 1
use_cpu: true
"""

SCRIPT = """
import json, sys
import accelerate, aot_core, aot_registry, torch

aot_registry.activate()
torch.manual_seed(0)
accelerator = accelerate.Accelerator()
model = accelerator.prepare(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).double())
with aot_core.record_reports() as reports:
    loss = model(torch.ones(2, 4, dtype=torch.float64)).square().mean()
    accelerator.backward(loss)
json.dump({"loss": loss.item(), "reports": [report.to_dict() for report in reports]}, open(sys.argv[1], "w"))
"""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


def build() -> Model:
    torch.manual_seed(10)
    return Model().double()


def train(model: nn.Module, **how) -> list[float]:
    """Return the losses of some steps with a fresh accelerator."""
    # The first Accelerator of a process keeps its backend for all that follow.
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, **how)
    # Not Adam: it divides by the gradients' size, and a wrong factor in all of them would not show.
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.2))
    generator = torch.Generator().manual_seed(11)
    losses = []
    for _ in range(3):
        x = torch.randn(4, 4, dtype=torch.float64, generator=generator)
        loss = (model(x) - x[:, :1].sin()).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def expected():
    losses = train(build())
    assert losses[-1] != pytest.approx(losses[0], rel=1e-2), "a model that does not move proves nothing"
    return losses


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_accelerate_lists_some_of_ours():
    assert OURS == ["aot_torchxla_trace_once", "aot_ts_nvfuser", "nvprims_nvfuser", "torchxla_trace_once"]
    assert TAKEN_OVER == ["aot_eager"]


@pytest.mark.parametrize("name", sorted(set(OURS) & set(TRAINING)))
def test_listed_backend_trains(name, expected):
    with aot_core.record_reports() as reports:
        losses = train(build(), dynamo_backend=name)
    assert_compiled(reports, name)
    assert losses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(OURS) & set(UNUSABLE)))
def test_listed_backend_that_cannot_run_here_says_why(name, monkeypatch):
    monkeypatch.setenv("AOT_STRICT", "1")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        train(build(), dynamo_backend=name)
    assert isinstance(raised.value.inner_exception, aot_core.AotError)
    assert_refused(str(raised.value), name)


@pytest.mark.parametrize("name", TAKEN_OVER)
def test_name_of_torch_that_was_taken_over(name, expected):
    with aot_registry.activate() as activation, aot_core.record_reports() as reports:
        losses = train(build(), dynamo_backend=name)
    assert_compiled(reports, activation.overridden[name])
    assert losses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("backend", TRAINING)
def test_model_compiled_before_is_left_as_it_is(backend, expected):
    model = build()
    model.compile(backend=backend)
    with aot_core.record_reports() as reports:
        losses = train(model)
    assert_compiled(reports, backend)
    assert losses == pytest.approx(expected, rel=1e-9)


def test_options_reach_the_backend(expected):
    plugin = TorchDynamoPlugin(backend="aot_ts_nvfuser", options={"executor": "aten"})
    with aot_core.record_reports() as reports:
        losses = train(build(), dynamo_plugin=plugin)
    assert_compiled(reports, "aot_ts_nvfuser")
    assert "nvfuser-unusable" not in {decision.code for report in reports for decision in report.decisions}
    assert losses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", sorted(DECLARED.keys() - LISTED))
def test_name_that_is_not_listed_is_refused_by_accelerate(name):
    with pytest.raises(ValueError, match=f"'{name.upper()}' is not a valid DynamoBackend"):
        Accelerator(cpu=True, dynamo_backend=name)


def test_first_accelerator_of_a_process_keeps_its_backend():
    Accelerator(cpu=True, dynamo_backend="aot_ts_nvfuser")
    second = Accelerator(cpu=True, dynamo_backend="nvprims_nvfuser")
    assert second.state.dynamo_plugin.backend is DynamoBackend.AOT_TS_NVFUSER


@pytest.mark.parametrize("name", [*OURS, *TAKEN_OVER])
def test_config_file(name, tmp_path):
    config, script, results = tmp_path / "config.yaml", tmp_path / "train.py", tmp_path / "results.json"
    config.write_text(CONFIG.format(name=name.upper()))
    script.write_text(SCRIPT)
    process = subprocess.run(
        [COMMAND, "launch", "--config_file", str(config), str(script), str(results)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "AOT_STRICT": str(int(name in UNUSABLE))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    if name in UNUSABLE:
        assert process.returncode != 0
        assert_refused(process.stderr, name)
        return
    assert process.returncode == 0, process.stdout + process.stderr
    found = json.loads(results.read_text())
    backend = {info.overrides: info.name for info in DECLARED.values()}.get(name, name)
    assert_compiled([CompileReport(**report) for report in found["reports"]], backend)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).double()
    expected = model(torch.ones(2, 4, dtype=torch.float64)).square().mean()
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-9)
