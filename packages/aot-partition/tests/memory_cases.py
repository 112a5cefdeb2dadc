"""Graphs and problems that several tests of the planner use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import aot_function, default_partition
from torch import fx, nn

from aot_partition.joint_graph import JointGraph
from aot_partition.memory.problem import Operation, Problem


class Step:
    """A captured training step of a model: its joint graph, and the inputs of its forward."""

    def __init__(self, joint: fx.GraphModule, num_fwd_outputs: int, inputs: list[Any]) -> None:
        self.joint, self.num_fwd_outputs, self.inputs = joint, num_fwd_outputs, inputs

    def read(self) -> JointGraph:
        return JointGraph(self.joint, num_fwd_outputs=self.num_fwd_outputs)


def capture(
    model: nn.Module, *inputs: torch.Tensor, decompositions: Any = None, dynamic: bool = False
) -> Step:
    """Trace the step whose loss is the sum of the model's output."""
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    found: dict[str, Any] = {}

    def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        graph = fx.Graph()
        environment: dict[fx.Node, fx.Node] = {}
        for node in joint.graph.nodes:
            environment[node] = graph.node_copy(node, environment.__getitem__)
        found["joint"] = fx.GraphModule(joint, graph)
        found["count"] = options["num_fwd_outputs"]
        return default_partition(joint, joint_inputs, **options)

    def run(module: fx.GraphModule, _: Any) -> Any:
        def call(arguments: list[Any]) -> Any:
            found.setdefault("inputs", [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments])
            return module(*arguments)

        return _boxed(call)

    def step(parameters: Any, buffers: Any, *inputs: Any) -> Any:
        return torch.func.functional_call(model, (parameters, buffers), inputs)

    compiled = aot_function(step, run, partition_fn=partition, decompositions=decompositions, dynamic=dynamic)
    compiled(parameters, buffers, *inputs)
    return Step(found["joint"], found["count"], found["inputs"])


def _boxed(call: Callable[[list[Any]], Any]) -> Any:
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


class Transformer(nn.Module):
    """Pre-norm blocks of torch.nn and a loss."""

    def __init__(self, depth: int = 2, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, batch_first=True, norm_first=True)
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Convolutional(nn.Module):
    """Residual blocks with batch norm, and a loss."""

    def __init__(self, depth: int = 3, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


class Views(nn.Module):
    """Views, a value returned twice, an output that is a view, and one that shares memory with a saved value."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x @ self.weight).exp()
        first, second = y.chunk(2, dim=-1)
        z = (first * second).tanh()
        return z.sum() + y.t()[0].sum(), z.t(), y


def random_problem(rng: random.Random, *, operations: int = 7) -> Problem:
    """Return a small step: a random forward, and a backward that goes back through it."""
    sizes: list[int] = []
    forward: list[Operation] = []
    for k in range(operations):
        reads = tuple(sorted(rng.sample(range(len(sizes)), min(len(sizes), rng.choice((1, 1, 2))))))
        makes = tuple(range(len(sizes), len(sizes) + rng.choice((1, 1, 1, 2))))
        sizes += [rng.randrange(1, 9) * 8 for _ in makes]
        forward.append(
            Operation(
                f"f{k}",
                reads,
                makes,
                seconds=float(rng.randrange(1, 10)),
                scratch=rng.choice((0, 0, 8)),
                replayable=rng.random() > 0.1,
            )
        )
    made = len(sizes)
    backward: list[Operation] = []
    gradient: tuple[int, ...] = ()
    results: set[int] = set()
    for k in reversed(range(operations)):
        available = [*forward[k].reads, *forward[k].makes]
        reads = tuple(
            sorted({*rng.sample(available, rng.choice((0, 1, 1, min(2, len(available))))), *gradient})
        )
        makes = (len(sizes),)
        sizes.append(rng.randrange(1, 9) * 8)
        if rng.random() < 0.3:
            results.add(makes[0])
        gradient = makes
        backward.append(Operation(f"b{k}", reads, makes, seconds=float(rng.randrange(1, 10))))
    return Problem(
        forward=tuple(forward),
        backward=tuple(backward),
        sizes=tuple(sizes),
        outputs=frozenset({made - 1}),
        gradients=frozenset({*results, *gradient}),
        tangent_bytes=8,
    )
