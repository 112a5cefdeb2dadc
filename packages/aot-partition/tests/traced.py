"""Joint graphs of functions, and running the two halves of a partition like AOTAutograd's runtime does."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, default_partition, make_boxed_func
from torch import fx

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@dataclasses.dataclass
class Traced:
    """A joint graph, with what AOTAutograd passes to a partitioner besides."""

    module: fx.GraphModule
    options: dict[str, Any]

    def node(self, name: str) -> fx.Node:
        return next(node for node in self.module.graph.nodes if node.name == name)

    def nodes(self, target) -> list[fx.Node]:
        packet = getattr(target, "overloadpacket", target)
        return [n for n in self.module.graph.nodes if getattr(n.target, "overloadpacket", n.target) is packet]


def trace(function, *inputs, decompositions=None) -> Traced:
    """Trace the step of a function of tensors; those that require a gradient get one."""
    found: list[Traced] = []

    def partition(module, joint_inputs, **options):
        found.append(Traced(copy_of(module), options))
        return default_partition(module, joint_inputs, **options)

    compiled = aot_function(
        function,
        lambda gm, _: make_boxed_func(gm.forward),
        partition_fn=partition,
        decompositions=decompositions,
    )
    compiled(*inputs)
    return found[0]


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    return fx.GraphModule(module, graph)


def run_with(partition, function, *inputs, decompositions=None, seed=0):
    """Run a step with a partitioner: outputs, gradients, and the two graphs."""
    halves = []

    def partition_fn(module, joint_inputs, **options):
        halves.extend(partition(module, joint_inputs, **options))
        return tuple(halves)

    compiled = aot_function(
        function,
        lambda gm, _: make_boxed_func(gm.forward),
        partition_fn=partition_fn,
        decompositions=decompositions,
    )
    return *step(compiled, *inputs, seed=seed), halves


def step(function, *inputs, seed=0):
    """Return outputs and gradients of one step, on copies of the inputs."""
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    torch.manual_seed(seed)
    out = function(*copies)
    outs = out if isinstance(out, (tuple, list)) else [out]
    total = sum(o.square().sum() for o in outs if o.requires_grad)
    # So that what is drawn between forward and backward changes what a careless replay would draw.
    torch.rand(3)
    total.backward()
    after = torch.rand(1)
    return [o.detach() for o in outs], [x.grad for x in copies if x.requires_grad], after


def saved_names(forward: fx.GraphModule, options) -> list[str]:
    return [node.name for node in forward.graph.output_node().args[0][options["num_fwd_outputs"] :]]


def placeholders(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes if node.op == "placeholder"]


def called(gm: fx.GraphModule, op) -> list[fx.Node]:
    """Return the nodes that call an operator, replayed ones included."""
    found = []
    for node in gm.graph.nodes:
        targets = [node.target, *node.args[:2]] if node.op == "call_function" else []
        if any(getattr(t, "overloadpacket", t) is op for t in targets if not isinstance(t, fx.Node)):
            found.append(node)
    return found


def corpus():
    """Return the module that captures the repository's corpus, or skip."""
    if not (BENCHMARKS / "corpus").is_dir():
        pytest.skip("waits for the folder benchmarks/ of the repository, which an sdist has not")
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    from corpus import capture

    return capture
