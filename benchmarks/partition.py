"""Time and result of the min-cut partitioner, against torch's own on the same joint graphs.

    python benchmarks/partition.py [--small] [--rounds N] [--models NAME ...] [--lazy]

For each graph of the corpus, torch's ``min_cut_rematerialization_partition`` and
``min_cut_partition(cost_model="torch")`` run in turns, each on a fresh copy of the graph, and so does one plain
copy of the graph, node by node and without generating code. Times are CPU seconds of this process, and of each
graph the fastest of the rounds is taken: only ratios mean something. "copies" is our time over that of the
plain copy; the exponent is the slope of time over nodes, from the two deepest graphs of a model.

Both sides generate the code of their graph modules, as AOTAutograd's functions have it; with --lazy neither
does, as under torch.compile.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from corpus.capture import Case, Joint, capture
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from aot_partition import min_cut_partition

DEPTHS = {
    "transformer": (12, 48, 96),
    "llama": (12, 48),
    "t5": (12, 72),
    "bert": (12, 72),
    "vit": (12, 72),
    "resnet": (24, 128),
    "densenet": (24, 96),
    "lstm": (64, 384),
    "scan": (250, 1000),
}
SMALL = {name: (depths[0] // 4,) for name, depths in DEPTHS.items()}
LARGE = 10_000


@dataclasses.dataclass(frozen=True)
class Measured:
    """One graph: its size, seconds of the three, and whether both partitions are the same."""

    case: Case
    nodes: int
    copy: float
    ours: float
    torchs: float
    same: bool

    def __str__(self) -> str:
        return (
            f"{self.case!s:<28} {self.nodes:>7} {self.copy:>8.3f} {self.ours:>8.3f} {self.torchs:>8.3f} "
            f"{self.torchs / self.ours:>7.1f}x {self.ours / self.copy:>7.1f} {'same' if self.same else 'DIFFERS'}"
        )


def measure(case: Case, rounds: int) -> Measured:
    joint = capture(case)
    seconds: dict[str, list[float]] = {"copy": [], "ours": [], "torch": []}
    # What capturing left behind is not what a partitioner should be charged for looking through.
    gc.collect()
    gc.freeze()
    results: dict[str, Any] = {}
    try:
        for _ in range(rounds):
            for name, run in runs(joint).items():
                with timed(seconds[name]):
                    results[name] = run()
    finally:
        gc.unfreeze()
    same = interfaces(results["ours"], joint) == interfaces(results["torch"], joint)
    nodes = len(joint.module.graph.nodes)
    return Measured(case, nodes, *(min(seconds[name]) for name in ("copy", "ours", "torch")), same)


def runs(joint: Joint) -> dict[str, Callable[[], Any]]:
    """Return what is timed; torch's gets a copy of its own, since it changes the graph."""
    module = joint.copy()
    return {
        "copy": lambda: copy_nodes(joint.module.graph),
        "ours": lambda: min_cut_partition(
            joint.module, joint.joint_inputs, cost_model="torch", **joint.options
        ),
        "torch": lambda: min_cut_rematerialization_partition(module, joint.joint_inputs, **joint.options),
    }


def copy_nodes(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        env[node] = copy.node_copy(node, env.__getitem__)
    return copy


@contextlib.contextmanager
def timed(seconds: list[float]) -> Iterator[None]:
    started = time.process_time()
    yield
    seconds.append(time.process_time() - started)


def interfaces(halves: tuple[fx.GraphModule, fx.GraphModule], joint: Joint) -> tuple[list[str], list[str]]:
    """Return the names of what is saved, and of all nodes of the backward, in order."""
    forward, backward = halves
    returned: Any = forward.graph.output_node().args[0]
    saved = [node.name for node in returned[joint.options["num_fwd_outputs"] :]]
    return saved, [node.name for node in backward.graph.nodes]


def exponent(small: Measured, large: Measured, which: str) -> float:
    return math.log(getattr(large, which) / getattr(small, which)) / math.log(large.nodes / small.nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="one small graph of each model, to check results"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(DEPTHS), choices=list(DEPTHS))
    parser.add_argument("--lazy", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    depths = SMALL if arguments.small else DEPTHS
    print(f"torch {torch.__version__}; seconds of CPU, the fastest of {arguments.rounds}")
    print(
        f"{'graph':<28} {'nodes':>7} {'copy':>8} {'ours':>8} {'torch':>8} {'ratio':>8} {'copies':>7} saved set"
    )
    measured = []
    for model in arguments.models:
        for decomposed, depth in itertools.product((False, True), depths[model]):
            with _use_lazy_graph_module(arguments.lazy):
                measured.append(measure(Case(model, depth, decomposed), arguments.rounds))
            print(measured[-1], flush=True)
        if arguments.small:
            with _use_lazy_graph_module(arguments.lazy):
                measured.append(measure(Case(model, depths[model][0], dynamic=True), arguments.rounds))
            print(measured[-1], flush=True)

    print()
    print(f"saved set identical: {sum(m.same for m in measured)} of {len(measured)} graphs")
    large = [m for m in measured if m.nodes >= LARGE]
    if large:
        ratio = statistics.geometric_mean(m.torchs / m.ours for m in large)
        print(
            f"torch's time over ours, {len(large)} graphs of at least {LARGE} nodes: {ratio:.1f}x geometric mean"
        )
    print(f"time over one plain copy: at most {max(m.ours / m.copy for m in measured):.1f}")
    by_model = itertools.groupby(measured, key=lambda m: (m.case.model, m.case.decomposed, m.case.dynamic))
    for (model, decomposed, _), group in by_model:
        *_, small, big = [None, *group]
        if small is not None:
            print(
                f"growth of {model}{'+decomposed' if decomposed else ''}: ours {exponent(small, big, 'ours'):.2f}, "
                f"copy {exponent(small, big, 'copy'):.2f}, torch {exponent(small, big, 'torchs'):.2f}"
            )


if __name__ == "__main__":
    main()
