"""Time and result of the min-cut partitioner, against torch's own on the same joint graphs.

    python benchmarks/partition.py [--models NAME ...] [--rounds N] [--small] [--generate-code]

For each graph of the corpus, torch's ``min_cut_rematerialization_partition`` and
``min_cut_partition(cost_model="torch")`` run in turns, each on a fresh copy of the graph, and so does one plain
copy of the graph, node by node and without generating code. A round goes through all depths of a model, so that
a machine that is slower for a while is so for all of them. Times are CPU seconds of this process, and of each
graph the median of the rounds: only ratios mean something. torch's, which takes nearly all of the time, runs in the
first three rounds, and once on graphs of at least ten thousand nodes. "copies" is our time over that of the plain
copy. The exponent is the slope of the logarithm of the fastest round over that of nodes, by least squares over a
model's depths: what else the machine does only adds to a round, and more to a long one.

Neither side generates the code of its graph modules, as under torch.compile, which generates it when it is called
for; with --generate-code both do, as under AOTAutograd's functions.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from corpus.capture import Case, Joint, capture
from functorch.compile import min_cut_rematerialization_partition
from rows import Row, print_rows
from torch import fx
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from aot_partition import min_cut_partition

DEPTHS = {
    "transformer": (12, 48, 96),
    "llama": (12, 24, 48),
    "t5": (12, 32, 72),
    "bert": (12, 32, 72),
    "vit": (12, 32, 72),
    "resnet": (24, 56, 128),
    "densenet": (24, 48, 96),
    "lstm": (64, 160, 384),
    "scan": (250, 500, 1000),
}
LARGE = 10_000
ROUNDS_OF_TORCH = 3


@dataclasses.dataclass
class Measured:
    """One graph: its size, seconds of each of the three in each round, and whether both partitions are the same."""

    case: Case
    nodes: int
    seconds: dict[str, list[float]]
    same: bool

    def median(self, which: str) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.seconds[which])

    @property
    def ratio(self) -> float:
        """torch's time over ours."""
        return self.median("torch") / self.median("ours")

    @property
    def copies(self) -> float:
        """Our time over that of a plain copy."""
        return self.median("ours") / self.median("copy")

    def __str__(self) -> str:
        seconds = " ".join(f"{self.median(which):>8.3f}" for which in ("copy", "ours", "torch"))
        return (
            f"{self.case!s:<28} {self.nodes:>7} {seconds} {self.ratio:>7.1f}x {self.copies:>7.1f} "
            f"{'same' if self.same else 'DIFFERS'}"
        )


def measure(depths: Sequence[Case], rounds: int) -> list[Measured]:
    """Time the depths of a model, in turns."""
    joints = [capture(case) for case in depths]
    measured = [
        Measured(case, len(joint.module.graph.nodes), {"copy": [], "ours": [], "torch": []}, same=True)
        for case, joint in zip(depths, joints, strict=True)
    ]
    # What capturing left behind is not what a partitioner should be charged for looking through.
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds):
            for joint, graph in zip(joints, measured, strict=True):
                graph.same &= measure_round(joint, graph, number)
    finally:
        gc.unfreeze()
    return measured


def measure_round(joint: Joint, graph: Measured, number: int) -> bool:
    """Run each partitioner once; return whether the partitions are the same, if torch's was among them."""
    results: dict[str, Any] = {}
    for name, run in runs(joint).items():
        if name == "torch" and number >= (1 if graph.nodes >= LARGE else ROUNDS_OF_TORCH):
            continue
        # Nor what the run before it left.
        gc.collect()
        with timed(graph.seconds[name]):
            results[name] = run()
    return "torch" not in results or interfaces(results["ours"], joint) == interfaces(results["torch"], joint)


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


def exponent(depths: list[Measured], which: str) -> float:
    nodes = [math.log(m.nodes) for m in depths]
    return statistics.linear_regression(nodes, [math.log(min(m.seconds[which])) for m in depths]).slope


def cases(models: list[str], *, small: bool) -> Iterator[list[Case]]:
    """Yield the depths of each model; the smallest also with a symbolic batch size."""
    for model in models:
        depths = (DEPTHS[model][0] // 4,) if small else DEPTHS[model]
        for dynamic, decomposed in itertools.product((False, True), (False, True)):
            yield [Case(model, depth, decomposed, dynamic) for depth in (depths[:1] if dynamic else depths)]


def rows(measured: list[Measured]) -> Iterator[Row]:
    same = sum(m.same for m in measured)
    yield Row(
        "saved set identical to torch's", f"{same} of {len(measured)} graphs", "all", same == len(measured)
    )
    large = [m for m in measured if m.nodes >= LARGE]
    if large:
        ratio = statistics.geometric_mean(m.ratio for m in large)
        yield Row(
            f"torch's time over ours, {len(large)} graphs of at least {LARGE} nodes",
            f"geometric mean {ratio:.1f}",
            "5",
            ratio >= 5,
        )
    scans = [m.ratio for m in large if m.case.model == "scan" and m.case.depth == DEPTHS["scan"][-1]]
    if scans:
        said = ", ".join(f"{ratio:.1f}" for ratio in scans)
        yield Row("torch's time over ours, scan of 1,000 steps", said, "20", min(scans) >= 20)
    copies = max(m.copies for m in measured)
    yield Row("our time over one plain copy", f"at most {copies:.1f}", "8", copies <= 8)
    excess = {}
    by_model = itertools.groupby(measured, key=lambda m: (m.case.model, m.case.decomposed, m.case.dynamic))
    for (model, decomposed, _), group in by_model:
        depths = list(group)
        if len(depths) > 1:
            ours, copy, torchs = (exponent(depths, which) for which in ("ours", "copy", "torch"))
            name = f"{model}{'+decomposed' if decomposed else ''}"
            excess[name] = ours - copy
            yield Row(f"exponent of growth, {name}", f"ours {ours:.2f}, copy {copy:.2f}, torch {torchs:.2f}")
    if excess:
        name, worst = max(excess.items(), key=lambda item: item[1])
        yield Row(
            "our exponent over a plain copy's", f"at most {worst:+.2f} ({name})", "+0.05", worst <= 0.05
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="one small graph of each model, to check results"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", nargs="*", default=list(DEPTHS), choices=list(DEPTHS))
    parser.add_argument("--generate-code", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print(f"torch {torch.__version__}; seconds of CPU")
    print(
        f"{'graph':<28} {'nodes':>7} {'copy':>8} {'ours':>8} {'torch':>8} {'ratio':>8} {'copies':>7} saved set"
    )
    measured = []
    with _use_lazy_graph_module(not arguments.generate_code):
        for depths in cases(arguments.models, small=arguments.small):
            found = measure(depths, arguments.rounds)
            print(*found, sep="\n", flush=True)
            measured += found
    print_rows(rows(measured))


if __name__ == "__main__":
    main()
