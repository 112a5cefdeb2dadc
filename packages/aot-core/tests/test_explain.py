from __future__ import annotations

import copy
import dataclasses
import json
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-untyped]
from torch import nn
from torch.nn import functional as F

import aot_core
from aot_core import Explanation, InputExplanation, explain, explain_with
from aot_core.explaining.memory_overlap import region_of, regions_overlap

# Dynamo asks a tensor that is no leaf whether it has a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.norm = nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 8)
        self.last.weight = nn.Parameter(self.first.weight.detach().t().contiguous())
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        hidden = torch.tanh(self.norm(self.first(x)))
        return {"out": self.last(hidden) * batch["mask"]}


def call_of_net() -> tuple[Net, torch.Tensor, dict[str, torch.Tensor]]:
    return Net(), torch.randn(4, 8), {"mask": torch.ones(4, 8)}


def by_name(explanation: Explanation, graph: int = 0) -> dict[str, InputExplanation]:
    return {given.name: given for given in explanation.graphs[graph].inputs}


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"test_explain.py:{function.__code__.co_firstlineno + offset}"


# --- what it tells -----------------------------------------------------------------------------------------


def test_inputs_carry_the_names_that_the_user_knows() -> None:
    model, x, batch = call_of_net()
    inputs = by_name(explain(model, x, batch))
    kinds = {name: given.kind for name, given in inputs.items()}
    assert kinds == {
        "x": "argument",
        "batch['mask']": "argument",
        "first.weight": "parameter",
        "first.bias": "parameter",
        "norm.weight": "parameter",
        "norm.bias": "parameter",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
        "norm.num_batches_tracked": "buffer",
        "last.weight": "parameter",
        "last.bias": "parameter",
        "calls": "buffer",
    }
    assert inputs["first.weight"].what == "float32[6, 8]" and inputs["first.weight"].requires_grad


def test_writes_carry_operator_and_source_line() -> None:
    model, x, batch = call_of_net()
    explanation = explain(model, x, batch)
    assert set(explanation.written) == {
        "calls",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    (write,) = by_name(explanation)["calls"].writes
    assert write == aot_core.Write("aten.add_", line_of(Net.forward, 1))
    # The line of the user's module, not of torch's batch norm.
    assert by_name(explanation)["norm.running_mean"].writes[0].source == line_of(Net.forward, 2)


def test_writes_hidden_from_autograd_are_told_apart() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.mul_(2)
        y.mul_(3)
        return x * y

    x, y = (torch.randn(3, requires_grad=True).clone() for _ in range(2))
    inputs = by_name(explain(f, x, y))
    assert [write.hidden for write in inputs["x"].writes] == [True]
    assert [write.hidden for write in inputs["y"].writes] == [False]


def test_one_tensor_passed_twice() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    x = torch.randn(3)
    explanation = explain(f, x, x)
    (given,) = explanation.graphs[0].inputs
    assert given.name == "x" and given.also_named == ("y",)
    assert explanation.written == ("x", "y")


def test_tied_parameters_have_two_names() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    model["two"].weight = model["one"].weight

    def f(x: torch.Tensor) -> torch.Tensor:
        return model["two"](model["one"](x))

    given = by_name(explain(f, torch.randn(2, 3)))["model.one.weight"]
    assert given.also_named == ("model.two.weight",) and given.kind == "parameter"


def test_inputs_that_share_memory() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y.sum() + z.sum() + whole.sum()

    base = torch.randn(12)
    inputs = by_name(explain(f, base[:4], base[2:6], base[8:], base))
    assert inputs["x"].overlaps == ("y", "whole")
    assert set(inputs["x"].shares_memory_with) == {"y", "z", "whole"}
    assert inputs["z"].overlaps == ("whole",)
    assert [inputs[name].base for name in ("x", "y", "z", "whole")] == ["whole", "whole", "whole", None]
    assert [bool(inputs[name].writes) for name in ("x", "y", "z", "whole")] == [True, True, False, True]


def test_an_input_that_no_graph_has_is_written_through_another() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.copy_(x) + 1

    base = torch.randn(12)
    explanation = explain(f, base[:4], base[2:6], base[8:])
    assert [given.name for given in explanation.graphs[0].inputs] == ["x"]
    assert explanation.written == ("x", "y") and explanation.written_elsewhere == ("y",)


def test_decisions_of_the_wrapper_are_there() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    base = torch.randn(6)
    (graph,) = explain(f, base[:4], base[2:]).graphs
    assert [decision.code for decision in graph.decisions] == ["aliased-inputs"]


def test_a_change_of_metadata() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x + y

    explanation = explain(f, torch.randn(2, 3), torch.randn(3, 2))
    assert explanation.reshaped == ("x",) and explanation.written == ()


def test_a_change_of_metadata_within_a_graph() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_method("t_", (x,))
    graph.output((graph.call_method("add", (x, 1)),))
    captured = aot_core.explaining.captured_graph.explain_captured(
        torch.fx.GraphModule(nn.Module(), graph),
        [torch.randn(2, 3)],
        aot_core.explaining.tensor_names.TensorNames(),
    )
    change = captured.inputs[0].metadata_change
    assert change is not None and (change.size, change.stride, change.offset) == ((3, 2), (1, 3), 0)
    assert captured.inputs[0].writes == ()


def test_outputs_of_every_kind() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        x.add_(1)
        made = y * 2
        hidden = y.exp()
        return x, y.view(-1), made, made[0], hidden[1:], None, 3

    explanation = explain(f, torch.randn(2, 3), torch.randn(2, 3))
    found = [(result.kind, result.alias_of[:1], result.shares_memory_with) for result in explanation.results]
    assert found[:4] == [
        ("input", ("x",), ()),
        ("alias of input", ("y",), ()),
        ("fresh", (), ("result[3]",)),
        ("fresh", (), ("result[2]",)),
    ]
    assert found[4][0] == "alias of intermediate" and found[4][2] == ()
    assert [kind for kind, _, _ in found[5:]] == ["none", "value"]


def test_training_and_inference_follow_the_grad_mode() -> None:
    model, x, batch = call_of_net()
    (training,) = explain(model, x, batch).graphs
    with torch.no_grad():
        (inference,) = explain(model, x, batch).graphs
    assert training.mode == "training" and inference.mode == "inference"
    assert [stage.stage for stage in training.stages] == ["joint", "forward", "backward"]
    assert [stage.stage for stage in inference.stages] == ["inference"]
    assert training.outputs[0].requires_grad and not inference.outputs[0].requires_grad
    assert training.tangents and training.saved
    assert not inference.tangents and not inference.saved
    assert training.stages[1].operations["aten.addmm.default"] == 2


def test_tangents_say_what_they_are_the_gradient_of() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y)
        return x.sum()

    x = torch.randn(4, requires_grad=True).clone()
    (graph,) = explain(f, x, torch.randn(4, requires_grad=True)).graphs
    assert [(tangent.of, tangent.what, tangent.bytes) for tangent in graph.tangents] == [
        ("input x", "float32[4]", 16),
        ("output sum_1", "float32[]", 4),
    ]


def test_saved_activations_are_those_that_eager_saves() -> None:
    first, last = nn.Linear(8, 6), nn.Linear(6, 5)

    def f(x: torch.Tensor) -> torch.Tensor:
        return last(torch.tanh(first(x)).exp()).sin()

    x = torch.randn(4, 8)
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept_alive = f(x)
    held = {t.untyped_storage().data_ptr() for t in (x, *first.parameters(), *last.parameters())}
    explanation = explain(f, x)
    assert explanation.activation_bytes == sum(size for at, size in storages.items() if at not in held)
    assert explanation.graphs[0].saved_input_bytes == sum(size for at, size in storages.items() if at in held)
    assert kept_alive.requires_grad


def test_saved_values_in_one_storage_count_once() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return (y.t() @ y).sum()

    (graph,) = explain(f, torch.randn(3, 3, requires_grad=True)).graphs
    assert len([value for value in graph.saved if value.kind == "activation"]) > 1
    assert graph.activation_bytes == 3 * 3 * 4


def test_saved_inputs_of_merged_graphs_have_names() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return (y * w).sum()

    base = torch.randn(6)
    (graph,) = explain(f, base[:4], base[2:], torch.randn(4, requires_grad=True)).graphs
    assert all(value.of != "w" for value in graph.saved)  # only what y is by then
    assert [value.kind for value in graph.saved] == ["activation"]


def test_graph_breaks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        x.mul_(2)
        return y.view(-1)

    explanation = explain(f, torch.randn(2, 2))
    assert len(explanation.graphs) == 2
    (entry,) = explanation.breaks
    assert entry.source == line_of(f, 2) and "graph_break" in entry.reason
    inputs = by_name(explanation, 1)
    assert inputs["y"].kind == "intermediate" and inputs["y"].origin == (
        f"output 0 of graph {explanation.graphs[0].name}"
    )
    assert inputs["x"].kind == "argument" and explanation.written == ("x",)


def test_writes_between_graphs() -> None:
    @torch.compiler.disable
    def between(x: torch.Tensor) -> None:
        x.mul_(2)
        x.unsqueeze_(0)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        between(x)
        return x + y

    explanation = explain(f, torch.ones(3), torch.ones(3))
    assert explanation.written == explanation.written_elsewhere == ("x",)
    assert explanation.reshaped == explanation.reshaped_elsewhere == ("x",)


def test_numbers_are_inputs_with_dynamic_shapes() -> None:
    explanation = explain_with(dynamic=True)(lambda x: x * x.shape[0], torch.randn(3, 4))
    kinds = {given.kind: given.what for given in explanation.graphs[0].inputs}
    assert kinds["argument"] and kinds["number"] in ("3", "4")


def test_fallbacks() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    with torch._dynamo.config.patch(allow_rnn=True):
        explanation = explain(Recurrent(), torch.randn(2, 1, 3))
    (graph,) = explanation.graphs
    assert graph.status == "fallback" and graph.mode == "uncompiled"
    assert [decision.code for decision in explanation.fallbacks] == ["lstm-training"]


def test_a_graph_that_the_backend_fails_on_is_explained_all_the_same() -> None:
    def broken(gm: Any, inputs: Any) -> Any:
        raise ValueError("no such instruction")

    backend = aot_core.aot_autograd(name="broken", fw_compiler=broken)
    explanation = explain_with(backend)(lambda x: x.add_(1), torch.ones(3))
    (graph,) = explanation.graphs
    assert graph.status == "failed" and graph.error is not None and "no such instruction" in graph.error
    assert explanation.written == ("x",)


def test_another_backend_and_its_options() -> None:
    model, x, batch = call_of_net()
    explained = explain_with(aot_core.debug.aot_inductor_debug, options={"check": "metadata"})(
        model, x, batch
    )
    assert explained.backend == "aot_inductor_debug" and explained.settings["check"] == "metadata"
    assert explained.graphs[0].stages[0].stage == "joint"
    with pytest.raises(aot_core.UnknownOptionError, match="check"):
        explain_with(options={"chek": "metadata"})
    with pytest.raises(TypeError, match="aot_core_eager"):
        explain_with("eager")


def test_keywords_all_go_to_the_function() -> None:
    def f(x: torch.Tensor, *, backend: int, options: torch.Tensor) -> torch.Tensor:
        return x * backend + options

    inputs = by_name(explain(f, torch.ones(2), backend=3, options=torch.ones(2)))
    assert set(inputs) == {"x", "options"}


def test_what_was_compiled_already_is_explained_uncompiled() -> None:
    model, x, batch = call_of_net()
    assert (
        by_name(explain(torch.compile(model, backend="eager"), x, batch)).keys()
        == by_name(explain(model, x, batch)).keys()
    )


# --- the graphs, node by node -------------------------------------------------------------------------------


def sin_squared(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y * y


def test_nodes_of_each_stage() -> None:
    backend = aot_core.aot_autograd(name="plain", fw_compiler=lambda gm, _: gm)
    (graph,) = explain_with(backend)(sin_squared, torch.ones(3, 2, requires_grad=True)).graphs
    assert graph.recomputed == ()
    forward = {stage.stage: stage for stage in graph.stages}["forward"]
    assert [(n.name, n.operation, n.bytes, n.reads, n.source) for n in forward.nodes] == [
        ("sin", "aten.sin.default", 24, ("primals_1",), line_of(sin_squared, 1)),
        ("mul", "aten.mul.Tensor", 24, ("sin",), line_of(sin_squared, 2)),
    ]
    assert set(forward.returns) == {"mul", *(value.name for value in graph.saved)}


def test_what_the_backward_computes_again() -> None:
    backend = aot_core.aot_autograd(
        name="again", fw_compiler=lambda gm, _: gm, partition_fn=min_cut_rematerialization_partition
    )
    x = torch.ones(3, 2, requires_grad=True)
    (graph,) = explain_with(backend)(sin_squared, x).graphs
    assert [(node.name, node.operation) for node in graph.recomputed] == [("sin", "aten.sin.default")]
    assert [value.kind for value in graph.saved] == ["argument"]


def test_analyses_get_the_two_graphs_and_may_fail() -> None:
    @dataclasses.dataclass
    class Counts:
        outputs: int
        saved: int
        backward: int

        def to_dict(self) -> dict[str, Any]:
            return dataclasses.asdict(self)

    def count(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, num: int) -> Counts:
        returned = forward.graph.output_node().args[0]
        calls = [node for node in backward.graph.nodes if node.op == "call_function"]
        return Counts(num, len(returned) - num, len(calls))  # type: ignore[arg-type]

    def fail(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, num: int) -> Counts:
        raise ValueError("no idea")

    model, x, batch = call_of_net()
    explained = explain_with(analyses={"counts": count, "fails": fail})(model, x, batch)
    (graph,) = explained.graphs
    assert graph.analyses["fails"] == {"error": "ValueError: no idea"}
    counts = graph.analyses["counts"]
    assert counts["saved"] == len(graph.saved) and counts["backward"] > 0
    assert json.loads(json.dumps(explained.to_dict()))["graphs"][0]["analyses"]["counts"] == counts
    assert explain(model, x, batch).graphs[0].analyses == {}


# --- how it is shown ---------------------------------------------------------------------------------------


def test_plain_data_and_tables() -> None:
    model, x, batch = call_of_net()
    explanation = explain(model, x, batch)
    plain = json.loads(json.dumps(explanation.to_dict()))
    assert plain["graphs"][0]["activation_bytes"] == explanation.activation_bytes > 0
    assert plain["written"] == list(explanation.written)
    assert dataclasses.asdict(explanation)["subject"] == plain["subject"] == "Net"
    text = str(explanation)
    for expected in ("norm.running_mean", line_of(Net.forward, 1), "saved activations", "aten.tanh.default"):
        assert expected in text
    tables = [line for line in explanation.to_markdown().splitlines() if line.startswith("|")]
    assert any("| calls | buffer |" in line for line in tables)


# --- everything stays as it was ----------------------------------------------------------------------------


def state_of(tensors: list[torch.Tensor]) -> list[Any]:
    return [
        (
            id(t),
            t.detach().clone().contiguous().view(torch.uint8).tolist() if t.dim() else t.item(),
            (t.size(), t.stride(), t.storage_offset(), t.untyped_storage().data_ptr()),
            (t.requires_grad, t.grad_fn, t._version),
            None if not t.is_leaf or t.grad is None else (id(t.grad), t.grad.tolist(), t.grad._version),
        )
        for t in tensors
    ]


def noisy(x: torch.Tensor) -> torch.Tensor:
    x.add_(random.random())
    return F.dropout(x, 0.5) + torch.rand(())


model_of_module: nn.Module


def through_global(x: torch.Tensor, batch: Any) -> Any:
    return model_of_module(noisy(x), batch)  # noqa: F821 (only annotated; the test gives it a value)


@pytest.mark.parametrize("reach", ["module", "closure", "global", "method", "object"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
def test_nothing_changes(reach: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, batch = call_of_net()
    model(x, batch)["out"].sum().backward()
    if fails:
        del batch["mask"]
    monkeypatch.setitem(globals(), "model_of_module", model)

    class Trainer:
        def __init__(self) -> None:
            self.model = model
            self.steps = 0

        def step(self, x: torch.Tensor, batch: Any) -> Any:
            self.steps += 1
            return self.model(noisy(x), batch)

    trainer = Trainer()
    functions: dict[str, Callable[..., Any]] = {
        "module": model,
        "closure": lambda x, batch: model(noisy(x), batch),
        "global": through_global,
        "method": trainer.step,
        "object": lambda x, batch: trainer.step(x, batch),
    }
    tensors = [x, *batch.values(), *model.parameters(), *model.buffers()]
    before, keys = state_of(tensors), list(batch)
    rng, python_rng = torch.get_rng_state(), random.getstate()
    if fails:
        with pytest.raises(KeyError):
            explain(functions[reach], x, batch)
    else:
        assert explain(functions[reach], x, batch).written
    assert state_of(tensors) == before and list(batch) == keys
    assert torch.equal(torch.get_rng_state(), rng) and random.getstate() == python_rng
    assert trainer.steps == 0 and trainer.model is model


def test_copies_share_memory_as_the_originals_do() -> None:
    base = torch.randn(4, 6, requires_grad=True)
    made = base.clone()
    given = [made, made[1:], made.detach()[:, 2:], made.t(), base, base.detach(), torch.randn(3).expand(2, 3)]
    copies = aot_core.explaining.isolated_copies.Copies().copy((given, made), what="it")
    assert copies[0][0] is copies[1]
    for one, other in zip(given, copies[0], strict=True):
        assert torch.equal(one, other) and one is not other
        assert (one.requires_grad, one.is_leaf) == (other.requires_grad, other.is_leaf)
        assert (one.size(), one.stride(), one.storage_offset()) == (
            other.size(),
            other.stride(),
            other.storage_offset(),
        )
        assert (one._base is None) == (other._base is None)
        assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    for pair in [(i, j) for i in range(len(given)) for j in range(i)]:
        shared = [
            len({tensors[i].untyped_storage().data_ptr() for i in pair}) for tensors in (given, copies[0])
        ]
        assert shared[0] == shared[1], pair


def test_what_cannot_be_copied_is_a_named_error() -> None:
    with pytest.raises(aot_core.UncopyableError, match="an argument can't be copied"):
        explain(lambda x, lock: x + 1, torch.ones(2), threading.Lock())


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.calls


def test_other_compiled_code_stays_compiled() -> None:
    compiles = []

    def backend(gm: Any, inputs: Any) -> Any:
        compiles.append(gm)
        return gm.forward

    model, x = Counting(), torch.randn(2, 3)
    compiled = torch.compile(copy.deepcopy(model), backend=backend)
    compiled(x)
    counters = copy.deepcopy(torch._dynamo.utils.counters)
    # More often than Dynamo compiles one piece of code by default.
    for _ in range(torch._dynamo.config.recompile_limit + 1):
        assert len(explain(model, x).graphs) == 1
    assert torch._dynamo.utils.counters == counters
    compiled(x)
    assert len(compiles) == 1


def test_the_first_size_that_a_function_is_compiled_for_is_not_that_of_explain() -> None:
    compiles = []

    def backend(gm: Any, inputs: Any) -> Any:
        compiles.append(gm)
        return gm.forward

    # So that there is a history that explain() could add to.
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    model = Net()
    assert explain(model, torch.randn(4, 8), {"mask": torch.ones(4, 8)}).written
    torch.compile(model, backend=backend)(torch.randn(5, 8), {"mask": torch.ones(5, 8)})
    # Had Dynamo seen two sizes, it would compile for any.
    values = [node.meta["example_value"] for node in compiles[0].graph.nodes if node.op == "placeholder"]
    assert not any(isinstance(value, torch.SymInt) for value in values)


# --- against what is seen in eager -------------------------------------------------------------------------


def test_overlap_is_exact(seed: int) -> None:
    generator = random.Random(seed)
    both = set()
    for _ in range(400):
        storage = torch.zeros(64)
        views = []
        for _ in range(2):
            size = [generator.randrange(1, 4) for _ in range(generator.randrange(3))]
            stride = [generator.choice((0, 1, 2, 3, 6)) for _ in size]
            reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
            views.append(storage.as_strided(size, stride, generator.randrange(64 - reach)))
        indices = [
            set(torch.arange(64).as_strided(v.size(), v.stride(), v.storage_offset()).flatten().tolist())
            for v in views
        ]
        expected = bool(indices[0] & indices[1])
        both.add(expected)
        assert (
            regions_overlap(*map(region_of, views))
            == regions_overlap(*map(region_of, views[::-1]))
            == expected
        )
    assert both == {True, False}


@dataclasses.dataclass
class Generated:
    """A random function of three tensors, and how they lie in memory."""

    source: str
    views: list[tuple[tuple[int, ...], tuple[int, ...], int, int]]
    same: tuple[int, int] | None
    training: bool

    @classmethod
    def draw(cls, generator: random.Random) -> Generated:
        lines, values = [], ["a", "b", "c"]
        for i in range(generator.randrange(2, 6)):
            value = generator.choice(values)
            target = f"t{i}"
            line = generator.choice(
                (
                    f"{value}.mul_(3.5)",
                    f"{value}[0].add_(100.0)",
                    f"{value}.detach().sub_(0.3)",  # no few of these undo one another
                    f"{target} = {value} * 2",
                    f"{target} = {value}.flatten()[1:3]",
                    f"{target} = {value}.transpose(0, -1)",
                    f"{target} = {value}[:1]",
                )
            )
            lines.append(line)
            if line.startswith(f"{target} ="):
                values.append(target)
        returned = [generator.choice(values) for _ in range(3)]
        body = "\n    ".join(lines)
        geometries = (((4,), (1,)), ((2, 2), (2, 1)), ((2, 2), (1, 2)), ((2, 3), (6, 2)), ((3,), (2,)))
        views = [
            (*generator.choice(geometries), generator.randrange(8), generator.randrange(2)) for _ in "abc"
        ]
        same = (0, generator.randrange(1, 3)) if generator.random() < 0.3 else None
        source = f"def f(a, b, c):\n    {body}\n    return {', '.join(returned)}\n"
        return cls(source, views, same, generator.random() < 0.5)

    def arguments(self) -> list[torch.Tensor]:
        bases = [torch.arange(1.0, 31.0) + 100 * i for i in range(2)]
        if self.training:
            bases = [base.requires_grad_().clone() for base in bases]
        made = [bases[base].as_strided(size, stride, offset) for size, stride, offset, base in self.views]
        if self.same is not None:
            made[self.same[1]] = made[self.same[0]]
        return made

    def function(self) -> Callable[..., Any]:
        namespace: dict[str, Any] = {}
        exec(self.source, namespace)
        function: Callable[..., Any] = namespace["f"]
        return function


def test_generated_programs_do_what_is_told(seed: int) -> None:
    generator = random.Random(seed)
    seen = {"written": 0, "not written": 0, "input": 0, "alias of input": 0, "beside": 0}
    compared = 0
    while compared < 40:
        program = Generated.draw(generator)
        arguments = program.arguments()
        aliases = [x.detach() for x in arguments]
        before = [x.clone() for x in aliases]
        try:
            outputs = program.function()(*arguments)
        except RuntimeError:
            continue  # not a valid program
        try:
            explanation = explain(program.function(), *program.arguments())
        except RuntimeError:
            # Nothing can be told of what doesn't run; but then it must not run without explain() either.
            torch.compiler.reset()
            with pytest.raises(RuntimeError):
                torch.compile(program.function(), backend=aot_core.debug.aot_core_eager)(*program.arguments())
            continue
        compared += 1
        for name, alias, value in zip("abc", aliases, before, strict=True):
            changed = not torch.equal(alias, value)
            assert (name in explanation.written) == changed, (name, program)
            seen["written" if changed else "not written"] += 1
        for i, (output, told) in enumerate(zip(outputs, explanation.results, strict=True)):
            itself = any(output is x for x in arguments)
            assert (told.kind == "input") == itself, (i, told, program)
            at = output.untyped_storage().data_ptr()
            owners = {
                n for n, x in zip("abc", arguments, strict=True) if x.untyped_storage().data_ptr() == at
            }
            assert set(told.memory_of) == owners, (i, told, program)
            beside = {
                f"result[{j}]"
                for j, other in enumerate(outputs)
                if j != i and other.untyped_storage().data_ptr() == at
            }
            assert set(told.shares_memory_with) == beside, (i, told, program)
            seen[told.kind if told.kind in seen else "beside"] += 1
            seen["beside"] += bool(beside)
    assert all(seen.values()), seen
