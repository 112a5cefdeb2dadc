"""Interpreters that run at call time leave alone what a trace in another thread relies on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx import traceback

import aot_core
from aot_core.graph_check import CrossrefInterpreter, MetadataInterpreter

INTERPRETERS = [aot_core.RuntimeInterpreter, MetadataInterpreter, CrossrefInterpreter]


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_record_of_a_trace_is_left_alone(interpreter: type[fx.Interpreter]) -> None:
    records: list[dict[str, Any]] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        records.append(traceback.get_current_meta())
        return x.sin()

    graph = fx.Graph()
    node = graph.call_function(look, (graph.placeholder("x"),))
    node.meta["stack_trace"] = "a node that runs"
    graph.output(node)
    x = torch.ones(3)
    with traceback.preserve_node_meta():  # as a trace in any thread switches it on, for all threads
        out = interpreter(fx.GraphModule({}, graph)).run(x)
        assert records[0] is traceback.get_current_meta()
    assert torch.equal(out, x.sin())


def test_attributes_modules_and_methods_run() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor, *, power: int = 2) -> torch.Tensor:
            return (self.linear(x) * self.scale).pow(power).relu()

    model, x = Model(), torch.ones(2, 3)
    assert torch.equal(aot_core.RuntimeInterpreter(fx.symbolic_trace(model)).run(x, 3), model(x, power=3))
