"""The backend's options, and what it says about what it does."""

from __future__ import annotations

import gc
import pickle

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import aot_core
import aot_cudagraphs
from aot_cudagraphs import (
    ArgumentCountError,
    CapturedGraph,
    CaptureFailedError,
    CaptureSettings,
    CudaGraphModule,
    RequiresGradientError,
    apply_cuda_graphs,
    islands,
)
from aot_cudagraphs.cache import State
from aot_cudagraphs.simulator import held_bytes


@pytest.fixture(autouse=True)
def apart():
    yield
    torch._dynamo.reset()
    gc.collect()


def compiled(function, **options):
    return torch.compile(function, backend=aot_cudagraphs.aot_cudagraphs, options=options)


def model(x):
    return torch.linalg.eigvals(x.sin()).real.cos() + torch.rand(3)


@pytest.fixture
def trusting(monkeypatch):
    """Partition without the table of refusals, as if it did not know an operation that a capture then refuses."""
    monkeypatch.setattr(islands, "refusal_of_node", lambda node, **how: None)


def test_a_capture_that_fails_falls_back_and_is_told(trusting):
    function = compiled(model, capture="simulated")
    with aot_core.record_reports() as reports, torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 3)
            state = torch.get_rng_state()
            expected = model(x)
            torch.set_rng_state(state)
            assert torch.equal(function(x), expected)
    (island,) = [decision for decision in reports[0].decisions if decision.code == "island"]
    assert (island.stage, island.subject) == ("inference", "island_0")
    assert {"sin", "linalg_eig", "cos", "rand"} <= {name.rpartition("_1")[0] or name for name in island.nodes}
    told = [decision for decision in reports[0].decisions if decision.action == "fallback"]
    assert [decision.code for decision in told] == ["host-algorithm"]
    assert told[0].subject == "linalg_eig" and told[0].source.startswith("test_backend.py:")
    (graph,) = [graph for graph in aot_cudagraphs.captured_graphs() if graph.name.startswith("inference")]
    assert graph.islands[0].states == [State.UNCAPTURED]
    del graph
    gc.collect()
    assert held_bytes() == 0


def test_strict_raises_where_a_capture_fails(trusting):
    function = compiled(model, capture="simulated", strict=True)
    with torch.no_grad():
        function(torch.randn(3, 3))  # warms up
        for _ in range(2):
            with pytest.raises(
                CaptureFailedError, match=r"linalg_eig \(test_backend.py:\d+\): .*See errors/capture-failed"
            ):
                function(torch.randn(3, 3))


def test_cpu_tensors_run_as_they_are_with_one_reason():
    with aot_core.record_reports() as reports:
        loss = compiled(torch.nn.Linear(3, 3))(torch.randn(2, 3)).sum()
        loss.backward()
    decisions = [decision for report in reports for decision in report.decisions]
    assert {decision.code for decision in decisions} == {"no-device-to-capture"}
    assert len(decisions) == 2  # forward and backward
    assert held_bytes() == 0


@pytest.mark.parametrize(
    "options",
    [{"max_graphs": 0}, {"warmup": -1}, {"memory_budget": -1}, {"outputs": "static"}, {"capture": "hip"}],
)
def test_options_are_checked(options):
    with pytest.raises(aot_core.InvalidOptionValueError):
        aot_core.parse_settings(CaptureSettings, options, backend="aot_cudagraphs")


def test_a_misspelt_option_is_an_error_that_names_the_closest():
    with pytest.raises(aot_core.UnknownOptionError, match="max_graphs"):
        CudaGraphModule(make_fx(lambda x: [x + 1])(torch.ones(2)), {"max_graph": 3})


def test_modules_return_what_the_graph_does():
    def f(x):
        return {"sum": x.sum(), "parts": (x[0] * 2, [x, 3])}

    run = CudaGraphModule(make_fx(f)(torch.randn(2, 2)), {"capture": "simulated"})
    for _ in range(4):
        x = torch.randn(2, 2)
        got, expected = run(x), f(x)
        assert type(got["parts"][1]) is list and got["parts"][1][0] is x and got["parts"][1][1] == 3
        assert torch.equal(got["sum"], expected["sum"]) and torch.equal(got["parts"][0], expected["parts"][0])


def test_a_graph_is_not_changed():
    gm = make_fx(lambda x: [torch.relu(x) + 1])(torch.randn(2))
    code = gm.code
    apply_cuda_graphs(gm, [torch.randn(2)], {"capture": "simulated"})(torch.randn(2))
    CudaGraphModule(gm, {"capture": "simulated"})(torch.randn(2))
    assert gm.code == code


def test_generators_draw_on():
    generator, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    graph = torch.fx.Graph()
    x, given = graph.placeholder("x"), graph.placeholder("generator")
    drawn = graph.call_function(torch.ops.aten.rand.generator, ([3],), {"generator": given})
    graph.output([graph.call_function(torch.ops.aten.add.Tensor, (x, drawn))])
    run = CudaGraphModule(torch.fx.GraphModule({}, graph), {"capture": "simulated"})
    for _ in range(5):
        x = torch.randn(3)
        assert torch.equal(run(x, generator)[0], x + torch.rand(3, generator=other))
    assert run.num_graphs == 1


def test_inference_mode():
    run = CudaGraphModule(
        make_fx(lambda x, w: [x @ w])(torch.ones(2, 2), torch.ones(2, 2)), {"capture": "simulated"}
    )
    w = torch.randn(2, 2)
    for i in range(8):
        with torch.inference_mode(i % 2 == 0):
            x = torch.randn(2, 2)
            assert torch.equal(run(x, w)[0], x @ w)


def test_sparse_and_subclass_inputs_run_uncaptured():
    run = CudaGraphModule(make_fx(lambda x: [x * 2])(torch.ones(2, 2)), {"capture": "simulated"})
    for _ in range(3):
        assert torch.equal(run(torch.eye(2).to_sparse())[0].to_dense(), torch.eye(2) * 2)
    assert run.num_graphs == 0


def test_errors_survive_pickling():
    for error in (CaptureFailedError("a."), ArgumentCountError("b."), RequiresGradientError("c.")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)


def test_a_graph_that_is_not_aten_is_an_error():
    gm = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    with pytest.raises(aot_core.UnanalysedOperationError):
        CudaGraphModule(gm, {"capture": "simulated"})


def test_captured_graphs_lists_what_is_in_use():
    before = set(map(id, aot_cudagraphs.captured_graphs()))
    run = apply_cuda_graphs(
        make_fx(lambda x: [x + 1])(torch.ones(2)), [torch.ones(2)], {"capture": "simulated"}
    )
    (found,) = [graph for graph in aot_cudagraphs.captured_graphs() if id(graph) not in before]
    assert found is run and isinstance(run, CapturedGraph)
