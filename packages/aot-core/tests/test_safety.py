from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import aot_core
from aot_core.debug import aot_core_eager
from aot_core.safety import find_unsafe


@pytest.fixture(autouse=True)
def allow_rnn() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def train(model: torch.nn.Module, options: dict[str, Any] | None = None) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3)
    output, _ = torch.compile(model, backend=aot_core_eager, options=options)(x)
    output.sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    model.zero_grad()
    model(x)[0].sum().backward()
    for one, parameter in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_lstm_training_falls_back_with_a_reason(
    reports: list[aot_core.CompileReport], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="aot_core"):
        train(torch.nn.LSTM(3, 4, num_layers=2))
        torch.compiler.reset()
        train(torch.nn.LSTM(3, 4, bidirectional=True))
    assert [report.status for report in reports] == ["fallback", "fallback"]
    (decision,) = reports[0].decisions
    assert (decision.action, decision.code) == ("fallback", "lstm-training")
    assert len([r for r in caplog.records if r.name == "aot_core.safety"]) == 1


@pytest.mark.parametrize("cell", [torch.nn.GRU, torch.nn.RNN])
def test_other_recurrent_nets_are_compiled(cell: Any, reports: list[aot_core.CompileReport]) -> None:
    train(cell(3, 4))
    assert [report.status for report in reports] == ["ok"]


def test_lstm_inference_is_compiled(reports: list[aot_core.CompileReport]) -> None:
    model, x = torch.nn.LSTM(3, 4), torch.randn(2, 5, 3)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=aot_core_eager)(x)[0], model(x)[0])
    assert [report.status for report in reports] == ["ok"]


@pytest.mark.parametrize("through", ["option", "variable", "torch"])
def test_strictness(through: str) -> None:
    options = {"strict": True} if through == "option" else None
    if through == "variable":
        os.environ["AOT_STRICT"] = "1"
    through_torch = torch._dynamo.config.patch(raise_on_unsafe_aot_autograd=through == "torch")
    with through_torch, pytest.raises(Exception, match="lstm-training") as caught:
        train(torch.nn.LSTM(3, 4), options)
    cause = getattr(caught.value, "inner_exception", caught.value)
    assert isinstance(cause, aot_core.UnsafeGraphError)
    assert isinstance(cause, NotImplementedError)


def test_the_predicate() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0] * 2  # type: ignore[no-any-return]

    graph = torch.fx.symbolic_trace(Net())
    x = torch.randn(2, 5, 3)
    assert not aot_core.is_aot_autograd_safe_to_run(graph, [x])
    assert [decision.subject for decision in find_unsafe(graph, [x])] == ["lstm"]
    with torch.no_grad():
        assert aot_core.is_aot_autograd_safe_to_run(graph, [x])
    assert aot_core.is_aot_autograd_safe_to_run(torch.fx.symbolic_trace(lambda x: x * 2), [x])
