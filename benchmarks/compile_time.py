"""How long our wrapper takes to compile a model, over torch's ``aot_eager`` on the same model.

    python benchmarks/compile_time.py [--layers N] [--rounds N]

A transformer without aliased inputs, forward and backward, one compile per turn and backend, in turns within
one process. A turn's time is that of the backend alone: what Dynamo spends before it is the same for all.
``aot_eager_default_partitioner`` is shown too: it partitions as ``aot_core_eager`` does, where ``aot_eager``
looks for a minimum cut.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend

from aot_core.debug import aot_core_eager

BACKENDS = ("aot_eager", "aot_eager_default_partitioner", "aot_core_eager")


def build_model(layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def timed(backend: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return a backend that notes how long each of its compiles takes."""

    def compile_graph(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        # The backward too: torch's wrapper puts it off, and would seem to need half the time.
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            started = time.perf_counter()
            compiled = backend(gm, inputs)
            seconds.append(time.perf_counter() - started)
        return compiled

    return compile_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model, x = build_model(arguments.layers), torch.randn(2, 16, 64)
    found = {"aot_core_eager": aot_core_eager}
    backends = {name: found.get(name) or lookup_backend(name) for name in BACKENDS}
    seconds: dict[str, list[float]] = {name: [] for name in BACKENDS}
    for number in range(arguments.rounds + 1):
        for shift in range(len(BACKENDS)):
            name = BACKENDS[(number + shift) % len(BACKENDS)]
            torch.compiler.reset()
            taken: list[float] = []
            torch.compile(model, backend=timed(backends[name], taken))(x).sum().backward()
            if number:  # the first round warms the caches of fake tensors up
                seconds[name].append(sum(taken))

    print(f"torch {torch.__version__}, {arguments.layers} layers, {arguments.rounds} rounds, compile time")
    for name, taken in seconds.items():
        ratios = [a / b for a, b in zip(taken, seconds["aot_eager"], strict=True)]
        print(
            f"{name:<30} {statistics.median(taken):6.2f} s   "
            f"{statistics.median(ratios):5.3f}x aot_eager ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
