"""Backends that are plain callables, models that can't be judged, and errors of use."""

import pytest
import torch
from small_models import build

import aot_registry
from aot_registry.bisecting.errors import EagerFailureError, InvalidSubjectError
from aot_registry.errors import UnknownBackendError


def swaps_cos(gm, example_inputs):
    """A backend of Dynamo's graphs, without AOTAutograd, that is wrong in one place."""
    for node in gm.graph.nodes:
        if node.target is torch.cos:
            node.target = torch.sin
    gm.recompile()
    return gm.forward


def test_a_foreign_callable_is_halved_at_the_captured_graph(tmp_path):
    model, inputs = build("broken")
    result = aot_registry.bisect(model, inputs, swaps_cos, reproducer_path=tmp_path / "repro.py")
    assert [stage.status for stage in result.stages] == [
        "ok",
        "ok",
        "skipped",
        "skipped",
        "skipped",
        "differs",
    ]
    assert result.stage == "backend"
    culprit = result.culprit
    assert (culprit.graph, culprit.role, culprit.node) == (1, "captured", "cos")
    assert culprit.source.startswith("small_models.py:")
    assert result.reproduces
    assert "import swaps_cos as BACKEND" in (tmp_path / "repro.py").read_text()


def test_a_branch_taken_by_a_wrong_fake_function_is_a_fault_of_the_capture():
    @torch.library.custom_op("bisect_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x):
        return x.new_empty(x.shape, dtype=torch.float64)  # wrong: it keeps the type

    def model(x):
        y = double(x)
        return y + 1 if y.dtype == torch.float64 else y

    result = aot_registry.bisect(model, torch.linspace(0, 1, 6), "aot_core_eager")
    assert result.stage == "dynamo", str(result)
    assert "capture" in result.culprit.cause


def test_a_model_that_never_repeats():
    calls = []

    def model(x):
        calls.append(1)
        return x * len(calls)

    result = aot_registry.bisect(model, torch.ones(3), "aot_core_eager")
    assert result.stage == "eager again"
    assert "eager itself" in result.culprit.cause
    assert [stage.status for stage in result.stages][1:] == ["skipped"] * 5


def test_loss_and_target():
    model, inputs = build("perceptron")
    target = torch.zeros(6, 3)
    result = aot_registry.bisect(
        model, inputs, "aot_core_eager", loss_fn=torch.nn.functional.mse_loss, target=target
    )
    assert result.stage is None
    assert result.reference == "float64"


def test_a_model_that_fails_in_eager():
    with pytest.raises(EagerFailureError, match=r"fails without torch\.compile: RuntimeError: mat1"):
        aot_registry.bisect(torch.nn.Linear(4, 2), torch.ones(3, 5), "aot_core_eager")


def test_a_model_that_cant_be_copied():
    model = torch.nn.Linear(2, 2)
    model.cached = model(torch.ones(1, 2))
    with pytest.raises(InvalidSubjectError, match="copying raised RuntimeError"):
        aot_registry.bisect(model, torch.ones(1, 2), "aot_core_eager")


@pytest.mark.parametrize(
    ("model", "backend", "error", "message"),
    [
        (3, "aot_eager", InvalidSubjectError, "got a int"),
        (torch.sin, "aot_core_egaer", UnknownBackendError, "Did you mean 'aot_core_eager'"),
        (torch.sin, "no_such_module:backend", InvalidSubjectError, "can't be imported"),
        (torch.sin, "math:pi", InvalidSubjectError, "is a float, which can't be called"),
        (torch.sin, 7, InvalidSubjectError, "got 7"),
    ],
)
def test_errors_of_use(model, backend, error, message):
    with pytest.raises(error, match=message):
        aot_registry.bisect(model, torch.ones(1), backend)
