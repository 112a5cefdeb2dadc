from __future__ import annotations

import gc
import json
import threading
import time
import weakref

import pytest
import torch

import aot_core
from aot_core.debug import aot_core_eager
from aot_core.report import RECENT_LIMIT


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_report_per_graph(reports: list[aot_core.CompileReport]) -> None:
    compiled = torch.compile(double, backend=aot_core_eager)
    compiled(torch.ones(3, requires_grad=True)).sum().backward()
    compiled(torch.ones(3))
    training, inference = reports
    assert (training.backend, training.status, training.num_inputs) == ("aot_core_eager", "ok", 1)
    assert list(training.stages) == ["joint", "forward", "backward"]
    assert list(inference.stages) == ["inference"]
    assert inference.stages["inference"]["operations"] == 1
    assert training.graph != inference.graph
    assert training.compile_seconds > 0
    json.dumps(training.to_dict())


def test_recorders_nest_and_end() -> None:
    with aot_core.record_reports() as outer:
        with aot_core.record_reports() as inner:
            torch.compile(double, backend=aot_core_eager)(torch.ones(2))
        torch.compiler.reset()
        torch.compile(double, backend=aot_core_eager)(torch.ones(2))
    torch.compiler.reset()
    torch.compile(double, backend=aot_core_eager)(torch.ones(2))
    assert (len(inner), len(outer)) == (1, 2)


def test_another_thread_is_not_recorded(reports: list[aot_core.CompileReport]) -> None:
    compiled = torch.compile(double, backend=aot_core_eager)
    thread = threading.Thread(target=compiled, args=(torch.ones(2),))
    thread.start()
    thread.join()
    assert reports == []
    assert aot_core.recent_reports()[-1].backend == "aot_core_eager"


def test_the_history_is_bounded() -> None:
    from aot_core.report import publish

    for i in range(RECENT_LIMIT + 5):
        publish(aot_core.CompileReport("x", f"#{i}"))
    recent = aot_core.recent_reports()
    assert len(recent) == RECENT_LIMIT
    assert recent[-1].graph == f"#{RECENT_LIMIT + 4}"


def test_a_report_keeps_no_tensor_alive(reports: list[aot_core.CompileReport]) -> None:
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend=aot_core_eager)
    compiled(torch.ones(1, 2)).sum().backward()
    parameter = weakref.ref(model.weight)
    del model, compiled
    torch.compiler.reset()
    gc.collect()
    assert len(reports) == 1
    assert parameter() is None


def test_a_failure_is_reported(reports: list[aot_core.CompileReport]) -> None:
    def broken(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise KeyError("no such kernel")

    backend = aot_core.aot_autograd(name="broken", fw_compiler=broken)
    with pytest.raises(Exception, match="no such kernel"):
        torch.compile(double, backend=backend)(torch.ones(2))
    assert reports[0].status == "failed"
    assert "no such kernel" in str(reports[0].error)


def test_decisions_of_a_compiler_are_in_the_report(reports: list[aot_core.CompileReport]) -> None:
    def compiler(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        node = next(node for node in gm.graph.nodes if node.op == "call_function")
        aot_core.record_decision(node.name, "skip", "too-small", source=aot_core.source_line(node))
        return gm

    backend = aot_core.aot_autograd(name="deciding", fw_compiler=compiler)
    torch.compile(double, backend=backend)(torch.ones(2))
    (decision,) = reports[0].decisions
    assert (decision.stage, decision.subject, decision.code) == ("inference", "mul", "too-small")
    assert str(decision.source).startswith("test_report.py:")


def test_a_decision_after_the_compile_is_logged_and_traced(
    reports: list[aot_core.CompileReport], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from aot_core import _compat

    traced: list[str] = []
    compiled = torch.compile(torch.linalg.inv, backend=aot_core_eager)
    loss = compiled(torch.eye(2, requires_grad=True)).sum()
    monkeypatch.setattr(_compat, "trace_artifact", lambda name, payload: traced.append(payload()))
    with caplog.at_level("DEBUG", logger="aot_core"), torch.autocast("cpu", dtype=torch.bfloat16):
        loss.backward()
    assert [decision.code for decision in reports[0].decisions] == ["backward-autocast"]
    assert any("backward-autocast" in record.getMessage() for record in caplog.records)
    assert "backward-autocast" in traced[0]


def test_outside_a_compile_there_is_no_compilation() -> None:
    with pytest.raises(RuntimeError, match="outside a compile"):
        aot_core.current_compilation()


def test_reports_reach_the_structured_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from aot_core import _compat

    seen: list[str] = []
    monkeypatch.setattr(
        "torch._logging.trace_structured",
        lambda kind, metadata_fn, payload_fn: seen.append(f"{kind} {metadata_fn()['name']} {payload_fn()}"),
    )
    _compat.trace_artifact("a_name", lambda: "{}")
    assert seen == ["artifact a_name {}"]


def test_stages_lie_within_their_compile_and_after_each_other(reports: list[aot_core.CompileReport]) -> None:
    before = time.time()
    torch.compile(double, backend=aot_core_eager)(torch.ones(3, requires_grad=True)).sum().backward()
    (report,) = reports
    assert before <= report.started <= time.time() - report.compile_seconds + 1e-3
    end = 0.0
    for stage in ("joint", "forward", "backward"):
        times = report.stages[stage]
        assert end <= times["start"]
        end = times["start"] + times["seconds"]
    assert end <= report.compile_seconds


def test_a_decision_may_name_a_piece_of_a_graph(reports: list[aot_core.CompileReport]) -> None:
    def fuse_all(gm: torch.fx.GraphModule, example_inputs: object) -> object:
        calls = [node.name for node in gm.graph.nodes if node.op == "call_function"]
        aot_core.record_decision("all", "fuse", "region", nodes=iter(calls))
        aot_core.record_decision("all", "skip", "region")
        return gm

    backend = aot_core.aot_autograd(name="fuse_all", fw_compiler=fuse_all)
    torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
    fused, skipped = json.loads(json.dumps(reports[0].to_dict()))["decisions"]
    assert (fused["nodes"], skipped["nodes"]) == (["sin", "add"], [])
    assert reports[0].to_dict()["decisions"][0] == reports[0].decisions[0].to_dict()
