"""Executors: by name, their claims, what happens when they fail, and that nothing is claimed twice."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys

import pytest
import torch
from claimed import graph_of
from functorch.compile import aot_function

import aot_core
from aot_core import Availability
from aot_partition import (
    RegionFailedError,
    UnknownExecutorError,
    UnusableExecutorError,
    create_nvprims_backend,
    find_executor,
    nvprims_fw_bw_partition_fn,
    prims_executor,
)
from aot_partition.executors import Executor

aten = torch.ops.aten


class Recorder:
    """Runs regions as they are, and notes what it was given."""

    device_types = None

    def __init__(self, name="recorder", *, usable=True, refused=()):
        self.name = name
        self.usable = usable
        self.refused = refused
        self.asked = 0
        self.regions: list[list[str]] = []
        self.inputs: list[object] = []
        self.ran = 0

    def availability(self):
        return Availability(self.usable, "no such device", "Get one.")

    def refuse(self, node):
        self.asked += 1
        return "it is on the list" if node.target in self.refused else None

    def compile_region(self, subgraph, example_inputs):
        self.regions.append([str(n.target) for n in subgraph.graph.nodes if n.op == "call_function"])
        self.inputs.append(example_inputs)

        def run(inputs):
            self.ran += 1
            arguments = list(inputs)
            inputs.clear()
            return subgraph(*arguments)

        return run


class FailsToCompile(Recorder):
    def compile_region(self, subgraph, example_inputs):
        raise NotImplementedError("not today")


class FailsToRun(Recorder):
    error: Exception = ValueError("bad kernel")

    def compile_region(self, subgraph, example_inputs):
        def run(inputs):
            self.ran += 1
            inputs.clear()
            raise self.error

        return run


def model(x, w):
    return (torch.nn.functional.gelu(x @ w).softmax(-1) @ w).sin().exp()


def step(function, seed=0):
    torch.manual_seed(seed)
    x, w = torch.rand(2, 5, 5).unbind()
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    out = function(x, w)
    out.sum().backward()
    return out.detach(), x.grad, w.grad


def test_by_name():
    assert find_executor("aten").name == "aten"
    assert find_executor("aot_partition.executors.aten:EXECUTOR") is find_executor("aten")
    recorder = Recorder()
    assert find_executor(recorder) is recorder and isinstance(recorder, Executor)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atem", "There are 'aten', 'nvfuser'"),
        ("no_module_of_that_name:X", "can't be loaded"),
        ("aot_partition.executors.aten:NOTHING", "can't be loaded"),
        ("aot_partition.executors.aten:aten", "can't be loaded"),
        ("aot_partition.executors.aten:fx", "is no executor"),
        (object(), "got object"),
    ],
)
def test_what_is_no_executor(name, message):
    with pytest.raises(UnknownExecutorError, match=message):
        find_executor(name)


def test_an_executor_of_ones_own():
    recorder = Recorder()
    backend = create_nvprims_backend(executor=recorder)
    assert backend.name == "nvprims_recorder"
    torch.testing.assert_close(step(torch.compile(model, backend=backend)), step(model))
    assert recorder.ran == len(recorder.regions) > 2
    flat = [target for region in recorder.regions for target in region]
    assert "aten.exp.default" in flat and "aten.mm.default" not in flat and "aten.gelu.default" not in flat
    assert all(isinstance(x, torch.Tensor) for inputs in recorder.inputs for x in inputs)


def test_its_refusals_count():
    recorder = Recorder(refused=[aten.exp.default])
    with aot_core.record_reports() as (reports):
        step(torch.compile(model, backend=create_nvprims_backend(executor=recorder)))
    assert "aten.exp.default" not in {target for region in recorder.regions for target in region}
    details = [str(decision) for decision in reports[0].decisions]
    assert any("it is on the list" in detail and "aten.exp.default" in detail for detail in details)


def test_what_the_partitioner_claimed_is_not_claimed_again():
    recorder = Recorder()
    backend = create_nvprims_backend(executor=recorder)
    step(torch.compile(model, backend=backend))
    asked = recorder.asked
    joint = sum(map(len, recorder.regions))
    # Each node of the joint graph is looked at once, though forward and backward were compiled after that.
    assert 0 < asked <= joint * 1.5
    recorder.asked = 0
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.rand(5, 5), torch.rand(5, 5))
    assert recorder.asked > 0, "a graph of inference never saw the partitioner"


def test_in_a_foreign_backend():
    """Outside of a compile of ours, with torch's own wrapper, and with a graph that nobody claimed before."""
    recorder = Recorder()
    compiled = aot_function(
        model,
        fw_compiler=functools.partial(prims_executor, executor=recorder),
        partition_fn=functools.partial(nvprims_fw_bw_partition_fn, executor=recorder),
    )
    torch.testing.assert_close(step(compiled), step(model))
    assert recorder.ran
    graph = graph_of(model, torch.rand(5, 5), torch.rand(5, 5))
    before = str(graph.code)
    run = prims_executor(graph, [], executor="aten")
    torch.testing.assert_close(run([torch.ones(5, 5), torch.ones(5, 5)]), model(*torch.ones(2, 5, 5)))
    assert graph.code == before


@pytest.mark.parametrize(("kind", "code"), [(FailsToCompile, "compile"), (FailsToRun, "run")])
def test_a_region_that_fails_is_run_by_aten(kind, code):
    executor = kind()
    with aot_core.record_reports() as reports:
        compiled = torch.compile(model, backend=create_nvprims_backend(executor=executor))
        torch.testing.assert_close(step(compiled), step(model))
        ran = executor.ran
        torch.testing.assert_close(step(compiled, 1), step(model, 1))
    assert executor.ran == ran, "what failed once is not tried again"
    decisions = [d for d in reports[0].decisions if d.code == f"region-failed-to-{code}"]
    assert {decision.action for decision in decisions} == {"fallback"}
    assert {decision.stage for decision in decisions} == {"forward", "backward"}
    assert "aten.exp.default" in decisions[0].detail and "recorder" in decisions[0].detail
    assert ("region" in {d.code for d in reports[0].decisions}) == (code == "run")


@pytest.mark.parametrize("kind", [FailsToCompile, FailsToRun])
def test_strict_raises(kind):
    backend = create_nvprims_backend(executor=kind(), strict=True)
    with pytest.raises(Exception, match=r"RegionFailedError|Region 'region_0' failed"):
        step(torch.compile(model, backend=backend))


def test_a_full_device_is_not_covered_up():
    executor = FailsToRun()
    executor.error = torch.OutOfMemoryError("full")
    with pytest.raises(torch.OutOfMemoryError):
        step(torch.compile(model, backend=create_nvprims_backend(executor=executor)))


class WritesAndFails(Recorder):
    """Writes its inputs, and fails at some of its calls when they are written already."""

    def __init__(self, fails_at, error=ValueError):
        super().__init__()
        self.fails_at = fails_at
        self.error = error

    def compile_region(self, subgraph, example_inputs):
        run = super().compile_region(subgraph, example_inputs)

        def run_and_fail(inputs):
            made = run(inputs)
            if self.ran in self.fails_at:
                raise self.error("too late")
            return made

        return run_and_fail


def counted(x, count):
    count.add_(x.sum() * 2)
    return (x * count).exp() + 1


def test_what_a_failing_region_wrote_is_restored():
    """It is run again by ATen: added to what it had added already, the count would be twice as large."""
    executor = WritesAndFails({1})
    compiled = torch.compile(counted, backend=create_nvprims_backend(executor=executor))
    x = torch.full((3,), 0.5)
    got, expected = torch.zeros(()), torch.zeros(())
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x, got), counted(x, expected))
            assert got == expected
    assert executor.ran == 1


def test_a_full_device_leaves_inputs_as_they_were():
    backend = create_nvprims_backend(executor=WritesAndFails({1}, torch.OutOfMemoryError))
    count = torch.zeros(())
    with torch.no_grad(), pytest.raises(torch.OutOfMemoryError):
        torch.compile(counted, backend=backend)(torch.ones(3), count)
    assert count == 0


def test_what_ran_before_and_writes_is_not_run_again():
    """Nothing is copied for it any more, so its failure is the caller's. Other sizes are a first time again."""
    executor = WritesAndFails({2, 4})
    compiled = torch.compile(counted, backend=create_nvprims_backend(executor=executor), dynamic=True)
    got, expected = torch.zeros(()), torch.zeros(())
    with torch.no_grad():
        compiled(torch.ones(3), got)
        counted(torch.ones(3), expected)
        with pytest.raises(ValueError, match="too late"):
            compiled(torch.ones(3), got)
        got.copy_(expected)
        for size in (4, 5):
            x = torch.ones(size) / 8
            torch.testing.assert_close(compiled(x, got), counted(x, expected))
    assert (got, executor.ran) == (expected, 4)


def test_a_file_that_reproduces_it(tmp_path):
    backend = create_nvprims_backend(executor=FailsToCompile("aten"), name="failing", repro=str(tmp_path))
    with aot_core.record_reports() as reports:
        step(torch.compile(model, backend=backend))
    files = sorted(tmp_path.glob("*.py"))
    failures = [d for d in reports[0].decisions if d.code == "region-failed-to-compile"]
    assert files and all(any(str(file) in d.detail for d in failures) for file in files)
    # The executor's name is aten's, which does not fail.
    done = subprocess.run([sys.executable, str(files[0])], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "same as ATen", done.stderr


def test_an_executor_that_cannot_run_here(caplog):
    backend = create_nvprims_backend(executor=Recorder("absent", usable=False))
    with aot_core.record_reports() as reports, caplog.at_level(logging.WARNING, "aot_partition"):
        for _ in range(2):
            torch.compiler.reset()
            torch.testing.assert_close(step(torch.compile(model, backend=backend)), step(model))
    assert [record.getMessage() for record in caplog.records] == [
        "Executor 'absent' can't run here, so ATen runs everything: no such device. Get one."
    ]
    assert {d.code for d in reports[1].decisions} >= {"executor-unusable"}
    strict = create_nvprims_backend(executor=Recorder("absent", usable=False), strict=True)
    with pytest.raises(Exception, match=r"UnusableExecutorError.*no such device\. Get one"):
        step(torch.compile(model, backend=strict))


def test_nothing_is_taken_apart_for_an_executor_that_cannot_run(monkeypatch):
    codes = []
    boxed_code = aot_core.boxed_code
    backend = create_nvprims_backend(executor=Recorder("absent again", usable=False))
    monkeypatch.setattr(aot_core, "boxed_code", lambda gm: codes.append(gm.code) or boxed_code(gm))
    with torch.no_grad():
        torch.compile(lambda x: x.softmax(0), backend=backend)(torch.rand(3))
    assert "softmax" in codes[0]


def test_errors_by_class():
    assert issubclass(RegionFailedError, RuntimeError)
    assert issubclass(UnusableExecutorError, RuntimeError)
