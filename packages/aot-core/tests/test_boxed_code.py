"""The code generator that stands in for torch's where torch has none (2.9), held to what the other does."""

from __future__ import annotations

import torch
from torch import fx

from aot_core import _compat


def test_a_boxed_forward_empties_its_list() -> None:
    def subtract(a: torch.Tensor, b: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        return a - 2 * b

    gm = fx.symbolic_trace(subtract)
    gm.graph.set_codegen(_compat._BoxedCode())
    gm.recompile()
    inputs = [torch.tensor(7.0), torch.tensor(2.0), torch.tensor(0.0)]
    assert gm.forward(inputs) == 3
    assert inputs == []


def test_a_graph_without_inputs() -> None:
    graph = fx.Graph()
    graph.output((1, 2))
    graph.set_codegen(_compat._BoxedCode())
    assert fx.GraphModule({}, graph).forward([]) == (1, 2)
