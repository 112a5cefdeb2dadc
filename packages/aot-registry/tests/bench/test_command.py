"""``aot bench`` from its arguments to its exit status."""

import argparse
import json
import subprocess
import sys

import pytest

from aot_core.errors import AotError
from aot_registry.bench import contenders
from aot_registry.bench.command import add_parser

USER_FILE = """
import torch
from torch import nn

def build():
    batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), batches, nn.functional.mse_loss
"""


def parse(*arguments):
    parser = argparse.ArgumentParser("aot")
    add_parser(parser.add_subparsers())
    return parser.parse_args(["bench", *arguments])


def bench(*arguments):
    args = parse(*arguments)
    return args.run(args)


@pytest.fixture
def user_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    return f"{path}:build"


def test_json_and_nothing_else_on_stdout(user_file, register, capsys):
    register(lambda graph, example_inputs: graph.forward, "as_is")
    small = ("--steps", "2", "--rounds", "2", "--seed", "7", "--json", "--no-progress")
    assert bench(user_file, "--backend", "as_is", "--backend", "aot_eager", *small) == 0
    captured = capsys.readouterr()
    (result,) = json.loads(captured.out)["workloads"]
    assert captured.err == ""
    assert (result["workload"], result["device"], result["seed"]) == (user_file, "cpu", 7)
    assert [row["backend"] for row in result["contenders"]] == ["eager", "as_is", "aot_eager"]
    assert [row["max_deviation"] for row in result["contenders"]] == [0, 0, 0]
    assert {len(row["losses"]) for row in result["contenders"]} == {2 + 2 * 2}


def test_a_page_beside_the_table(user_file, register, capsys, tmp_path):
    register(lambda graph, example_inputs: graph.forward, "as_is")
    page = tmp_path / "page.html"
    small = ("--steps", "2", "--rounds", "1", "--no-progress", "--html", str(page))
    assert bench(user_file, "--backend", "as_is", *small) == 0
    assert "as_is" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "<!DOCTYPE html>" in text[:20] and text.count("as_is") > 3 and "Loss of each step" in text


def test_a_page_that_can_not_be_written_is_refused_before_training(user_file, tmp_path):
    with pytest.raises(AotError, match=r"There is no folder .*missing.*See errors/report-file"):
        bench(user_file, "--html", str(tmp_path / "missing" / "page.html"))


def test_table_and_failure(user_file, register, capsys):
    def broken(graph, example_inputs):
        raise RuntimeError("no code today")

    register(broken, "broken")
    assert bench(user_file, "--backend", "broken", "--steps", "1", "--rounds", "1") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"{user_file}: 3 steps" in out
    assert "broken failed" in out
    assert "no code today" in out


def test_one_named_that_is_not_usable_fails(user_file, monkeypatch, capsys):
    monkeypatch.setattr(contenders.aot_registry, "list_backends", lambda exclude_tags: ["needs_gpu"])
    no = contenders.Availability(False, "no CUDA device")
    monkeypatch.setattr(contenders.aot_registry, "probe", lambda name: no)
    small = ("--steps", "1", "--rounds", "1")
    assert bench(user_file, "--backend", "needs_gpu", *small) == 1
    assert "needs_gpu: not usable: no CUDA device." in capsys.readouterr().out
    assert bench(user_file, *small) == 0, "nobody asked for it"


def test_progress_goes_to_stderr(user_file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # rich shortens what does not fit
    assert (
        bench(user_file, "--backend", "eager", "--steps", "1", "--rounds", "1", "--json", "--progress") == 0
    )
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert "mine.py" in captured.err


@pytest.mark.parametrize("option", ["--steps", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-3", "two"])
def test_numbers_are_checked(option, value, capsys):
    with pytest.raises(SystemExit):
        parse(option, value)
    assert f"must be a whole number of at least 1, got '{value}'" in capsys.readouterr().err


def test_defaults():
    args = parse()
    assert (args.workloads, args.backend, args.seed, args.json, args.progress) == ([], None, 0, False, None)


def test_help_names_the_workloads(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    out = capsys.readouterr().out
    for part in ("digits-conv", "text-gpt", "FILE.py:build", "aot-registry[bench]", "exit status"):
        assert part in out


def test_nothing_imports_torch_before_a_name_is_known_to_be_right(tmp_path):
    program = f"""
import argparse, sys
from aot_core.errors import AotError
from aot_registry.bench.command import add_parser

parser = argparse.ArgumentParser("aot")
add_parser(parser.add_subparsers())
for arguments in (["digit-conv"], [{str(tmp_path / "no.py:build")!r}], ["--backend", "inducto"]):
    args = parser.parse_args(["bench", *arguments])
    try:
        args.run(args)
    except AotError as error:
        print(type(error).__name__)
    assert "torch" not in sys.modules, arguments
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["UnknownWorkloadError", "WorkloadFileError", "UnknownBackendError"]


def test_errors_reach_the_caller(tmp_path):
    with pytest.raises(AotError, match=r"There is no workload 'text-gtp'\. Did you mean 'text-gpt'"):
        bench("text-gtp")
