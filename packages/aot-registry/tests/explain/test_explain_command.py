"""``aot explain`` from its arguments to its exit status."""

import importlib.metadata
import json
import subprocess
import sys

import pytest
import torch

import aot_registry
from aot_core import aot_autograd, record_decision
from aot_registry.cli import main
from aot_registry.explaining import analyses
from aot_registry.explaining.call import explain_model
from aot_registry.explaining.errors import ExplainedCallError, UnexplainableBackendError

USER_FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.last(self.dropout(torch.tanh(self.first(x))))

def build():
    return Net(), [(torch.randn(n, 3), torch.randn(n, 1)) for n in (4, 5)], nn.functional.mse_loss
"""


@pytest.fixture
def user_file(tmp_path, monkeypatch):
    path = tmp_path / "an_explained_file.py"
    path.write_text(USER_FILE)
    monkeypatch.chdir(tmp_path)
    return f"{path.name}:build"


def fuse_all(gm, example_inputs):
    nodes = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    record_decision("all", "fuse", "region", "<b>in one</b>", nodes=nodes, source="an_explained_file.py:14")
    return gm


@pytest.fixture
def fusing():
    aot_registry.register_backend(aot_autograd(name="fusing", fw_compiler=fuse_all), name="fusing")
    yield "fusing"
    aot_registry.unregister_backend("fusing")
    torch.compiler.reset()


def test_text(user_file, fusing, capsys):
    assert main(["explain", user_file, "--backend", fusing]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Net with fusing\n") and captured.err == ""
    assert "writes: calls" in captured.out and "[forward] fuse all (an_explained_file.py:14)" in captured.out


def test_json_and_batch(user_file, fusing, capsys):
    assert main(["explain", user_file, "--backend", fusing, "--json", "--batch", "1"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    (graph,) = explanation["graphs"]
    assert (explanation["backend"], graph["mode"]) == ("fusing", "training")
    (x,) = [given for given in graph["inputs"] if given["name"] == "x"]
    assert x["what"] == "float32[5, 3]"
    stages = {stage["stage"]: stage for stage in graph["stages"]}
    assert graph["decisions"][0]["nodes"] == [node["name"] for node in stages["forward"]["nodes"]]


def test_inference(user_file, capsys):
    assert main(["explain", user_file, "--inference", "--json"]) == 0
    assert [graph["mode"] for graph in json.loads(capsys.readouterr().out)["graphs"]] == ["inference"]


def test_page_and_trace(user_file, fusing, tmp_path, capsys):
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert main(["explain", user_file, "--backend", fusing, "--html", str(page), "--trace", str(trace)]) == 0
    assert "Net with fusing" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "Net of an_explained_file.py:build" in text and "&lt;b&gt;in one&lt;/b&gt;" in text
    assert "return self.last(self.dropout(torch.tanh(self.first(x))))" in text, "the line itself is quoted"
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["compile", "joint", "forward", "backward"]
    whole, *stages = (event for event in events if event["ph"] == "X")
    assert all(
        whole["ts"] <= stage["ts"] and stage["ts"] + stage["dur"] <= whole["ts"] + whole["dur"]
        for stage in stages
    )


def test_a_backend_that_fails_is_told_and_is_status_1(user_file, capsys):
    def broken(gm, example_inputs):
        raise RuntimeError("no code today")

    aot_registry.register_backend(aot_autograd(name="broken", fw_compiler=broken), name="broken")
    try:
        assert main(["explain", user_file, "--backend", "broken"]) == 1
    finally:
        aot_registry.unregister_backend("broken")
    assert "no code today" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py:build"], "There is no file 'missing.py'"),
        (
            ["an_explained_file.py:build", "--backend", "aot_core_egaer"],
            "There is no backend 'aot_core_egaer'",
        ),
        (["an_explained_file.py:build", "--backend", "eager"], "Backend 'eager' was not made by"),
        (["an_explained_file.py:build", "--backend", "nowhere:x"], "Backend 'nowhere:x' can't be imported"),
        (["an_explained_file.py:build", "--batch", "2"], "has 2 batches; --batch must be from 0 to 1, got 2"),
        (["an_explained_file.py:build", "--html", "no/page.html"], "There is no folder 'no'"),
        (["an_explained_file.py:build", "--trace", "."], "'.' is a folder"),
    ],
)
def test_errors_of_use(user_file, arguments, message, capsys):
    assert main(["explain", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_page_without_jinja_is_refused_before_the_model_is_built(user_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["explain", "missing.py:build", "--html", "page.html"]) == 2
    assert "pip install 'aot-registry[html]'" in capsys.readouterr().err


def test_nothing_imports_torch_before_a_name_is_known_to_be_right(tmp_path):
    program = f"""
import sys
from aot_registry.cli import main
assert main(["explain", {str(tmp_path / "no.py:build")!r}]) == 2
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- in Python -----------------------------------------------------------------------------------------------


def test_inputs_by_position_and_by_keyword_and_no_trace_of_the_call():
    def function(x, *, scale):
        return x * scale + torch.rand(2)

    torch.manual_seed(5)
    state = torch.get_rng_state()
    x = torch.ones(2)
    explanation, reports = explain_model(function, {"x": x, "scale": 2.0}, "aot_core_eager")
    assert [given.name for given in explanation.graphs[0].inputs] == ["x"] and len(reports) == 1
    explanation, _ = explain_model(torch.add, (x, x.clone()), "aot_core_eager")
    assert [given.kind for given in explanation.graphs[0].inputs] == ["argument", "argument"]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_raises():
    def function(x):
        raise KeyError("weights")

    with pytest.raises(ExplainedCallError, match=r"raised KeyError: 'weights'\..*See errors/explained-call"):
        explain_model(function, torch.ones(2), "aot_core_eager")


def test_backends_of_others_are_refused():
    with pytest.raises(UnexplainableBackendError, match="aot_inductor_debug to inductor"):
        explain_model(torch.sin, torch.ones(2), lambda gm, inputs: gm)


class Memory:
    def __init__(self, forward, backward, num_fwd_outputs):
        self.counts = [len(list(part.graph.nodes)) for part in (forward, backward)]

    def to_dict(self):
        return {"nodes": self.counts}


def test_installed_analyses_are_called_and_those_that_can_not_be_loaded_are_told(monkeypatch):
    entries = [
        importlib.metadata.EntryPoint("counts", f"{__name__}:Memory", analyses.GROUP),
        importlib.metadata.EntryPoint("gone", "no_such_module:x", analyses.GROUP),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: entries)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Memory.__module__])
    x = torch.ones(2, requires_grad=True)
    (graph,) = explain_model(lambda x: x.sin(), x, "aot_core_eager").explanation.graphs
    assert all(count > 0 for count in graph.analyses["counts"]["nodes"])
    assert graph.analyses["gone"]["error"].startswith("ModuleNotFoundError")


def test_the_seed_is_that_of_the_call():
    def function(x):
        return torch.nonzero(torch.rand(1000) > 0.5) + x

    def result(seed):
        return explain_model(function, torch.ones(1), "aot_core_eager", seed=seed).explanation.results[0].what

    assert result(0) == result(0) != result(1)
