"""``aot bisect`` from its arguments to its exit status."""

import json
import subprocess
import sys

import pytest

from aot_core.errors import AotError
from aot_registry.cli import main

USER_FILE = """
import torch
from torch import nn

def build():
    batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), batches, nn.functional.mse_loss

def wrong(gm, example_inputs):
    for node in gm.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sigmoid
    gm.recompile()
    return gm.forward
"""


@pytest.fixture
def user_file(tmp_path, monkeypatch):
    path = tmp_path / "a_users_file.py"
    path.write_text(USER_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


def test_a_fault_as_json_and_its_reproducer_as_a_program(user_file, capsys):
    arguments = (
        f"{user_file}:build",
        "--backend",
        "a_users_file:wrong",
        "--output",
        "repro.py",
        "--batch",
        "1",
    )
    assert main(["bisect", *arguments, "--json", "--no-progress"]) == 1
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert captured.err == ""
    assert (result["stage"], result["culprit"]["node"]) == ("backend", "input_2")
    assert result["culprit"]["operator"] == "tanh"
    assert (result["reproducer"], result["reproduces"]) == ("repro.py", True)
    assert result["stages"][-1]["failures"][0]["quantity"] == "output"
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "FAULT output[0]: off by" in done.stdout


def test_no_fault_as_text(user_file, capsys, tmp_path):
    assert main(["bisect", f"{user_file}:build", "--backend", "aot_core_eager", "--progress"]) == 0
    captured = capsys.readouterr()
    assert "No fault found" in captured.out
    assert "aot_core_eager" in captured.err
    assert not (tmp_path / "aot_bisect_repro.py").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py:build"], "There is no file 'missing.py'"),
        (["a_users_file.py:biuld", "--backend", "aot_eager"], "has no function 'biuld'"),
        (["a_users_file.py:build", "--backend", "aot_egaer"], "There is no backend 'aot_egaer'"),
        (["a_users_file.py:build", "--batch", "3"], "has 3 batches; --batch must be from 0 to 2, got 3"),
    ],
)
def test_errors_of_use(user_file, arguments, message, capsys):
    assert main(["bisect", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_nothing_imports_torch_before_a_name_is_known_to_be_right(tmp_path):
    program = f"""
import sys
from aot_registry.cli import main
assert main(["bisect", {str(tmp_path / "no.py:build")!r}]) == 2
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_errors_name_their_page():
    from aot_registry.bisecting.errors import EagerFailureError, InvalidSubjectError

    for error in (EagerFailureError, InvalidSubjectError):
        assert issubclass(error, AotError)
    assert str(EagerFailureError("No.")).endswith("See errors/eager-failure")
