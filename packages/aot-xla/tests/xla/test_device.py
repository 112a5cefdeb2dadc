"""The probe, the registry and the decompositions, where torch_xla is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from aot_xla.info import probe


def test_the_probe_finds_it_usable():
    answer = probe()
    assert answer.usable, answer
    assert answer.reason.startswith(f"torch {torch.__version__}"[:9])
    assert "device CPU" in answer.reason


def test_doctor_finds_all_four_usable():
    done = subprocess.run(
        [sys.executable, "-c", "from aot_registry.cli import main; main(['doctor', '--json'])"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    backends = json.loads(done.stdout)["backends"]
    ours = {each["backend"]: each["status"] for each in backends if each["distribution"] == "aot-xla"}
    names = ("aot_torchxla_trace_once", "aot_torchxla_trivial", "torchxla_trace_once", "torchxla_trivial")
    assert ours == dict.fromkeys(names, "usable"), done.stdout


def test_a_device_that_is_not_there():
    program = "from aot_xla.info import probe; answer = probe(); print(answer); assert not answer.usable"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ, PJRT_DEVICE="NONSENSE"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opens no device" in done.stdout


def gradient_is_output(ones):
    """Of dropout, where all inputs and all gradients are 1."""
    out, mask = torch.ops.aten.native_dropout(ones, 0.5, True)
    return torch.ops.aten.native_dropout_backward(ones, mask, 2.0) == out


@pytest.mark.parametrize(
    ("name", "function", "inputs"),
    [
        ("copy", torch.ops.aten.copy.default, (torch.zeros(2), torch.ones(2))),
        ("maximum", torch.maximum, (torch.tensor([1.0]), torch.tensor([float("nan")]))),
        ("clamp_min", lambda x: x.clamp_min(0.0), (torch.tensor([float("inf")]),)),
        ("division", lambda x: x // 3, (torch.tensor([2**62 + 1]),)),
        ("native_dropout", lambda x: gradient_is_output(x), (torch.ones(64),)),
    ],
)
def test_each_decomposition_has_its_reason(name, function, inputs):
    """What is spelled out is wrong on XLA itself. If this fails, a line of the table can go."""
    import torch_xla

    placed = [x.to(torch_xla.device()) for x in inputs]
    torch_xla.sync()
    got, first = function(*placed).cpu(), placed[0].cpu()
    right = function(*[x.clone() for x in inputs])
    same = got.dtype == right.dtype and torch.equal(got, right)
    assert not same or not torch.equal(first, inputs[0]), f"{name} is right on XLA: {got}"


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_division_on_xla(mode, dtype):
    limits = torch.iinfo(dtype)
    a = torch.tensor([limits.max, limits.max - 1, limits.min + 1, 7, -7, 0], dtype=dtype)
    b = torch.tensor([3, -7, 2**20 + 1, 2, 2, 5], dtype=dtype)
    run = torch.compile(lambda a, b: torch.div(a, b, rounding_mode=mode), backend="aot_torchxla_trace_once")
    assert torch.equal(run(a, b), torch.div(a, b, rounding_mode=mode))
