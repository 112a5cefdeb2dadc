"""From a model to the one joint graph that AOTAutograd would hand to a partitioner."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from functorch.compile import aot_function, default_partition, make_boxed_func
from torch import fx, nn

from corpus.models import MODELS

__all__ = ["Case", "Joint", "capture", "capture_function", "copy_of"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One joint graph of the corpus.

    Args:
        model: A key of `MODELS`.
        depth: Blocks, layers or steps.
        decomposed: With the decompositions that Inductor uses.
        dynamic: With a symbolic batch size.
        batch: The batch size.
    """

    model: str
    depth: int
    decomposed: bool = False
    dynamic: bool = False
    batch: int = 4

    def __str__(self) -> str:
        marks = ("+decomposed" if self.decomposed else "") + ("+dynamic" if self.dynamic else "")
        return f"{self.model}-{self.depth}{marks}"


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint graph, and what AOTAutograd tells a partitioner besides.

    Args:
        module: The graph; partitioners of torch change it, so give them a copy.
        joint_inputs: Primals and tangents, fake.
        options: ``num_fwd_outputs`` and ``static_lifetime_input_indices``.
    """

    module: fx.GraphModule
    joint_inputs: Any
    options: Mapping[str, Any]

    def copy(self) -> fx.GraphModule:
        return copy_of(self.module)


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph module node by node, with metadata shared as fx shares it."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    return fx.GraphModule(module, graph)


def capture(case: Case, *, seed: int = 0) -> Joint:
    """Trace a step of a model: forward, and backward of the sum of its output."""
    torch.manual_seed(seed)
    build, make_input = MODELS[case.model]
    model = build(case.depth).train()
    return capture_function(model, make_input(case.batch), decomposed=case.decomposed, dynamic=case.dynamic)


def capture_function(
    model: nn.Module, *inputs: torch.Tensor, decomposed: bool = False, dynamic: bool = False
) -> Joint:
    """Trace a module on inputs; parameters come first among the primals, and are static."""
    found: list[Joint] = []

    def partition(module: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        if not found:
            if not options.get("static_lifetime_input_indices"):
                options["static_lifetime_input_indices"] = list(range(len(parameters)))
            found.append(Joint(copy_of(module), joint_inputs, options))
        if not dynamic:
            raise _Captured
        return default_partition(module, joint_inputs, **options)

    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    decompositions = _inductor_decompositions() if decomposed else None
    if dynamic:
        _capture_dynamic(model, inputs, partition, decompositions)
    else:

        def step(parameters: Mapping[str, torch.Tensor], buffers: Any, *inputs: torch.Tensor) -> Any:
            return torch.func.functional_call(model, (parameters, buffers), inputs)

        compiled = aot_function(step, _run_as_it_is, partition_fn=partition, decompositions=decompositions)
        with contextlib.suppress(_Captured):
            compiled(parameters, buffers, *inputs)
    return found[0]


class _Captured(Exception):
    """There is no need to go on."""


def _capture_dynamic(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], partition: Callable[..., Any], decompositions: Any
) -> None:
    import aot_core

    for tensor in inputs:
        torch._dynamo.mark_dynamic(tensor, 0)
    backend = aot_core.aot_autograd(
        name="capture", fw_compiler=lambda gm, _: gm, partition_fn=partition, decompositions=decompositions
    )
    torch.compiler.reset()
    torch.compile(model, backend=backend, fullgraph=True)(*inputs)


def _run_as_it_is(module: fx.GraphModule, inputs: Any) -> Any:
    return make_boxed_func(module.forward)


def _inductor_decompositions() -> Any:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()
