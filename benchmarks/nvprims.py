"""Claims, regions and compile time of the nvprims backends, over joint graphs of five models.

    python benchmarks/nvprims.py                # all, some three minutes on one core
    python benchmarks/nvprims.py --depth 2      # smaller models
    python benchmarks/nvprims.py --dags 100000  # as many random graphs as the property is claimed for

Four tables:

- claimed: nodes of each joint graph that are claimed, outside matrix products, convolutions and attention, traced with
  the decompositions of the backend. In brackets with attention kernels among what should be claimed.
- regions: how many, before and after those that don't pay are dropped, beside torch's `CapabilityBasedPartitioner`
  on the same claims; it is given at most two minutes a graph.
- time: AOTAutograd's tracing without decompositions, against trace, claims and regions of the backend.
- random graphs: whether the regions ever form a cycle.

The exit status is 1 if a figure of ``FIGURES`` is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import operator
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from corpus.models import MODELS
from torch import fx, nn
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn import functional as F

import aot_core
from aot_partition import min_cut_partition
from aot_partition.nvprims import Claims, claim, nvprims_decompositions
from aot_partition.regions import find_regions

FIGURES = {"claimed": 99.0, "regions": 1.02, "seconds for 10,000 nodes": 1.0, "compile": 2.0, "cycles": 0}
NAMES = {"transformer": "GPT-2", "llama": "Llama", "vit": "ViT", "bert": "BERT", "resnet": "ResNet"}

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.convolution, aten.convolution_backward}


class WithLoss(nn.Module):
    """A model and the loss that it is trained with, dropout before it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores = F.dropout(self.model(x), 0.1)
        return F.cross_entropy(scores.flatten(0, -2), target.flatten())


@dataclasses.dataclass
class Step:
    """A joint graph and how long it took to trace."""

    joint: fx.GraphModule
    num_fwd_outputs: int
    seconds: float


def trace(model: nn.Module, inputs: tuple[torch.Tensor, ...], decompositions: Any) -> Step:
    """Let AOTAutograd trace a step, and return the joint graph with the time from the call to the partition."""
    found: list[Step] = []
    started = 0.0

    def decompose() -> Any:
        nonlocal started
        # Dynamo is done, and AOTAutograd starts.
        started = time.perf_counter()
        return decompositions() if decompositions else {}

    def partition(joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any) -> Any:
        found.append(Step(joint, num_fwd_outputs, time.perf_counter() - started))
        return min_cut_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)

    backend = aot_core.aot_autograd(
        name="trace",
        fw_compiler=lambda gm, _: gm,
        partition_fn=partition,
        decompositions=decompose,
        keep_inference_input_mutations=True,
    )
    torch.compiler.reset()
    torch.compile(model, backend=backend, fullgraph=True)(*inputs)
    return found[0]


def make_step(name: str, depth: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    build, make_input = MODELS[name]
    model = WithLoss(build(depth)).train()
    x = make_input(4)
    with torch.no_grad():
        scores = model.model(x)
    return model, (x, torch.randint(0, scores.shape[-1], scores.shape[:-1]))


# --- claims ----------------------------------------------------------------------------------------------------


def kind_of(node: fx.Node) -> str:
    source: Any = node.args[0] if node.target is operator.getitem else node
    packet = getattr(source.target, "overloadpacket", None)
    if packet in PRODUCTS:
        return "product"
    return "attention" if "scaled_dot_product" in str(source.target) else "other"


def share(claims: Claims, kinds: Iterable[str]) -> tuple[int, int]:
    counted = [node for node in (*claims.claimed, *claims.refused) if kind_of(node) in kinds]
    return sum(node in claims for node in counted), len(counted)


# --- regions ---------------------------------------------------------------------------------------------------


class Claimed(OperatorSupportBase):
    def __init__(self, nodes: Claims) -> None:
        self.nodes = nodes

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        return node in self.nodes


def torch_regions(gm: fx.GraphModule, claims: Claims) -> tuple[int, float]:
    started = time.perf_counter()
    partitioner = CapabilityBasedPartitioner(gm, Claimed(claims), allows_single_node_partition=True)
    return len(partitioner.propose_partitions()), time.perf_counter() - started


def chain(count: int) -> fx.GraphModule:
    """A graph of blocks of six pointwise operators and a product, ``count`` nodes in all."""
    graph = fx.Graph()
    value = torch.empty(4, 4, device="meta")
    node = graph.placeholder("x")
    node.meta["val"] = value
    ops = (aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor)
    for i in range(count):
        target = aten.mm.default if i % 7 == 6 else ops[i % 3]
        node = graph.call_function(target, (node, node))
        node.meta["val"] = value
    graph.output((node,))
    return fx.GraphModule(nn.Module(), graph)


def random_dag(seed: int) -> tuple[fx.GraphModule, set[fx.Node]]:
    """A random graph on one or two devices, with writes to inputs and random numbers among its nodes."""
    draw = random.Random(seed)
    graph = fx.Graph()
    devices = ["cpu", "meta"][: draw.choice([1, 1, 2])]

    def note(node: fx.Node, memory: torch.Tensor | None = None) -> fx.Node:
        node.meta["memory"] = torch.empty(2, 2, device=draw.choice(devices)) if memory is None else memory
        node.meta["val"] = node.meta["memory"].view(2, 2)
        return node

    nodes = [note(graph.placeholder(f"x{i}")) for i in range(draw.randint(1, 3))]
    inputs = list(nodes)
    reach = draw.choice([2, 4, 8, 30])
    claimed: set[fx.Node] = set()
    odds = draw.random()
    for _ in range(draw.randint(5, 60)):
        what, one, other = draw.random(), draw.choice(nodes[-reach:]), draw.choice(nodes[-reach:])
        if what < 0.05:
            node = note(graph.call_function(aten.rand_like.default, (one,)))
        elif what < 0.08:
            target = draw.choice(inputs)
            node = note(graph.call_function(aten.copy_.default, (target, one)), target.meta["memory"])
        elif what < 0.2:
            node = note(graph.call_function(aten.t.default, (one,)), one.meta["memory"])
        else:
            node = note(graph.call_function(draw.choice([aten.add.Tensor, aten.mul.Tensor]), (one, other)))
        nodes.append(node)
        if draw.random() < odds:
            claimed.add(node)
    graph.output([node for node in nodes if not node.users])
    return fx.GraphModule(nn.Module(), graph), claimed


def has_cycle(graph: fx.Graph, regions: Iterable[Iterable[fx.Node]]) -> bool:
    """Tell whether some nodes, each region taken as one, can't be put in an order.

    Besides values, the order of draws and of reads and writes of the inputs' memory binds.
    """
    unit: dict[fx.Node, Any] = {node: i for i, nodes in enumerate(regions) for node in nodes}
    edges: list[tuple[fx.Node, fx.Node]] = []
    drawn: fx.Node | None = None
    touched: dict[int, list[fx.Node]] = {}
    written: dict[int, fx.Node] = {}
    for node in graph.nodes:
        edges += [(source, node) for source in node.all_input_nodes]
        if node.target is aten.rand_like.default:
            edges += [(drawn, node)] if drawn is not None else []
            drawn = node
        if node.op == "call_function":
            for memory in {id(source.meta["memory"]) for source in node.all_input_nodes}:
                if memory in written:
                    edges.append((written[memory], node))
                touched.setdefault(memory, []).append(node)
        if node.target is aten.copy_.default:
            memory = id(node.args[0].meta["memory"])
            edges += [(earlier, node) for earlier in touched[memory] if earlier is not node]
            written[memory], touched[memory] = node, [node]
    waits: dict[Any, int] = {unit.get(node, node): 0 for node in graph.nodes}
    then: dict[Any, list[Any]] = {}
    for one, other in edges:
        first, second = unit.get(one, one), unit.get(other, other)
        if first != second:
            waits[second] += 1
            then.setdefault(first, []).append(second)
    ready = [each for each, count in waits.items() if not count]
    for each in ready:
        for later in then.get(each, ()):
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    return len(ready) < len(waits)


# --- the tables ------------------------------------------------------------------------------------------------


def median(function: Callable[[], float], repeats: int) -> float:
    return statistics.median(function() for _ in range(repeats))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", type=int, default=8, help="blocks of each model (default: 8)")
    parser.add_argument("--dags", type=int, default=2000, help="random graphs (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first random graph")
    parser.add_argument("--repeats", type=int, default=5, help="of each timing (default: 5)")
    parser.add_argument("--without-torch", action="store_true", help="don't wait for torch's partitioner")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, depth {options.depth}, seed {options.seed}")
    missed: list[str] = []

    def hold(figure: str, value: float, met: bool) -> None:
        if not met:
            missed.append(f"{figure}: {value:.4g}, must reach {FIGURES[figure]}")

    print("\nclaimed")
    steps: dict[str, tuple[Step, Claims]] = {}
    for name, title in NAMES.items():
        step = trace(*make_step(name, options.depth), nvprims_decompositions)
        claims = claim(step.joint)
        steps[name] = step, claims
        (hit, all_), (_, with_attention) = share(claims, ["other"]), share(claims, ["other", "attention"])
        refused = sorted({f"{n.target}: {why}" for n, why in claims.refused.items() if kind_of(n) == "other"})
        print(
            f"  {title:8} {hit:5} of {all_:5} = {100 * hit / all_:.2f} % ({100 * hit / with_attention:.2f} %)"
            f"   {'; '.join(refused)}"
        )
        hold("claimed", 100 * hit / all_, hit / all_ >= 0.99)

    print("\nregions (joint graph, forward, backward)")
    for name, title in NAMES.items():
        step, claims = steps[name]
        halves = min_cut_partition(step.joint, num_fwd_outputs=step.num_fwd_outputs, cost_model="torch")
        for half, gm in (("joint", step.joint), ("forward", halves[0]), ("backward", halves[1])):
            claims = claim(gm)
            started = time.perf_counter()
            kept = find_regions(gm, claims)
            seconds = time.perf_counter() - started
            every = len(find_regions(gm, claims, keep_all=True))
            line = f"  {title:8} {half:9} {len(claims):5} claimed nodes: {every:4} regions, "
            line += f"{len(kept):4} of them pay, {seconds:.3f} s"
            if not options.without_torch:
                theirs, theirs_seconds = torch_regions(gm, claims)
                line += f"; torch {theirs:4}, {theirs_seconds:.1f} s; ratio {every / theirs:.3f}"
                hold("regions", every / theirs, every <= FIGURES["regions"] * theirs)
            print(line, flush=True)

    print("\n10,000 nodes")
    large = chain(10_000)
    claims = claim(large)

    def find() -> float:
        started = time.perf_counter()
        find_regions(large, claims)
        return time.perf_counter() - started

    seconds = median(find, options.repeats)
    print(f"  {len(claims)} claimed nodes: {len(find_regions(large, claims))} regions in {seconds:.3f} s")
    hold("seconds for 10,000 nodes", seconds, seconds < 1)

    print("\ntime of trace + claims + regions over AOTAutograd's own tracing")
    for name, title in NAMES.items():
        model, inputs = make_step(name, options.depth)
        plain, ours = [], []
        for _ in range(options.repeats):
            plain.append(trace(model, inputs, None).seconds)
            step = trace(model, inputs, nvprims_decompositions)
            started = time.perf_counter()
            find_regions(step.joint, claim(step.joint))
            ours.append(step.seconds + time.perf_counter() - started)
        ratio = statistics.median(ours) / statistics.median(plain)
        print(f"  {title:8} {statistics.median(plain):.3f} s -> {statistics.median(ours):.3f} s: {ratio:.2f}")
        hold("compile", ratio, ratio <= 2)

    print("\nrandom graphs")
    cycles = 0
    started = time.perf_counter()
    ways = ({}, {"keep_all": True}, {"horizontal": False})
    for seed in range(options.seed, options.seed + options.dags):
        gm, claimed = random_dag(seed)
        regions = find_regions(gm, claimed, **ways[seed % len(ways)])
        if has_cycle(gm.graph, [region.nodes for region in regions]):
            cycles += 1
            print(f"  cycle: seed {seed}")
    print(f"  {options.dags} graphs, {cycles} cycles, {time.perf_counter() - started:.0f} s")
    hold("cycles", cycles, not cycles)

    print("\n" + ("missed: " + "; ".join(missed) if missed else "all figures reached"))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
