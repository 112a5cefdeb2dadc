"""What it costs at each call to know that no two inputs share memory.

    python benchmarks/alias_overhead.py [--inputs N] [--rounds N]

A graph that writes one of its inputs is checked at every call. Compared, in turns, are the same compiled graph
with and without the check, called with 150 small tensors of which none is aliased and one is written.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import backend
from aot_core.aliasing import dealias
from aot_core.debug import aot_core_eager


def graph_of(inputs: int) -> fx.GraphModule:
    """Return a graph that adds up all its inputs, and writes the first."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(inputs)]
    total = graph.call_method("add_", (nodes[0], 1))
    for node in nodes[1:]:
        total = graph.call_function(torch.add, (total, node))
    graph.output((total,))
    return fx.GraphModule({}, graph)


def compile_unchecked(gm: fx.GraphModule, inputs: Sequence[Any], compile_graph: Any, _: Any) -> Any:
    return compile_graph(gm, inputs)


def microseconds(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> float:
    started = time.perf_counter()
    function(*inputs)
    return (time.perf_counter() - started) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=4001)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    inputs = [torch.ones(4) for _ in range(arguments.inputs)]
    checked = aot_core_eager(graph_of(arguments.inputs), inputs)
    backend.compile_without_aliases = compile_unchecked
    unchecked = aot_core_eager(graph_of(arguments.inputs), inputs)
    backend.compile_without_aliases = dealias.compile_without_aliases

    # One call each in turns, and each first as often as the other: what slows the machine for a while slows both.
    times: dict[Any, list[float]] = {checked: [], unchecked: []}
    for i in range(arguments.rounds):
        for function in (checked, unchecked) if i % 2 else (unchecked, checked):
            times[function].append(microseconds(function, inputs))
    with_check, without = statistics.median(times[checked]), statistics.median(times[unchecked])
    extra = statistics.quantiles(a - b for a, b in zip(times[checked], times[unchecked], strict=True))
    print(
        f"torch {torch.__version__}, {arguments.inputs} inputs, one written: the check takes "
        f"{with_check - without:.1f} us a call (quartiles of pairs {extra[0]:.1f} and {extra[2]:.1f}), "
        f"{with_check / without:.3f}x the call without it, which takes {without:.0f} us"
    )


if __name__ == "__main__":
    main()
