"""Time that the host spends on one replay, over what it can't be without: copying the inputs and replaying.

    python benchmarks/cudagraphs_host.py [--inputs 150] [--rounds 40]

The simulator's replay is stubbed out, so that what is left is what happens around it: comparing what the inputs look
like and where they lie, copying, handing out. ``compiled`` is what `torch.compile` calls for a graph of fixed sizes,
whose tensors Dynamo's guards have looked at; ``module`` is a `CudaGraphModule`, which looks by itself.

The floor is `torch._foreach_copy_` of the same inputs into the same memory, the stub, and one output copied. Both run
interleaved, in rounds; printed are medians of the thread's CPU time in microseconds, and the ratio of the two with its
quartiles over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aot_cudagraphs import CapturedGraph, CaptureSettings, CudaGraphModule, partition
from aot_cudagraphs.lanes import lanes_for
from aot_cudagraphs.simulator import SimulatedEngine, SimulatedRecording

CALLS = 50


def main() -> None:
    """Print one row for each share of inputs that are read in place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    SimulatedRecording.replay = _nothing  # type: ignore[method-assign]
    print(
        f"{arguments.inputs} inputs of 16×16 floats, one output, medians of {arguments.rounds} rounds, in µs"
    )
    print(f"{'':8} {'copied':>8} {'in place':>8} {'replay':>10} {'floor':>10} {'ratio':>7}   quartiles")
    for copied in (arguments.inputs, arguments.inputs // 2, 1):
        for kind in ("compiled", "module"):
            _measure(kind, arguments.inputs, copied, arguments.rounds)


def _nothing(self: SimulatedRecording) -> None:
    pass


def _measure(kind: str, count: int, copied: int, rounds: int) -> None:
    def function(*inputs: torch.Tensor) -> list[torch.Tensor]:
        total = inputs[0]
        for each in inputs[1:]:
            total = total + each
        return [total]

    def draw() -> list[torch.Tensor]:
        return [torch.randn(16, 16) for _ in range(copied)]

    stay = [torch.nn.Parameter(torch.randn(16, 16), requires_grad=False) for _ in range(count - copied)]
    gm = make_fx(function, tracing_mode="fake")(*draw(), *stay)
    call, island = _module(gm) if kind == "module" else _compiled(gm)
    inputs = [draw() for _ in range(4)]
    for each in inputs:
        call([*each, *stay])
    (plan,) = island.input_plans
    if len(plan.stand_ins) != copied:
        raise AssertionError(f"{copied} inputs are to be copied, and {len(plan.stand_ins)} are")
    targets, output = [one.tensor for one in plan.stand_ins.values()], torch.empty(16, 16)

    def replay(i: int) -> None:
        call([*inputs[i % 4], *stay])

    def floor(i: int) -> None:
        torch._foreach_copy_(targets, inputs[i % 4])
        _nothing(None)  # type: ignore[arg-type]
        output.clone()

    ours, bare = [], []
    for _ in range(rounds):
        ours.append(_time(replay))
        bare.append(_time(floor))
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"{kind:8} {copied:8} {count - copied:8} {statistics.median(ours):10.1f} {statistics.median(bare):10.1f} "
        f"{middle:7.2f}   {low:.2f} to {high:.2f}"
    )


def _module(gm: fx.GraphModule) -> tuple[Callable[[list[torch.Tensor]], object], CudaGraphModule]:
    island = CudaGraphModule(gm, {"capture": "simulated"})
    return lambda inputs: island(*inputs), island


def _compiled(gm: fx.GraphModule) -> tuple[Callable[[list[torch.Tensor]], object], CudaGraphModule]:
    engine, part = SimulatedEngine(), partition(gm)
    captured = CapturedGraph(
        gm,
        CaptureSettings(capture="simulated"),
        part,
        lanes_for(engine, part.device),
        engine=engine,
        overlaps=False,
        looks_known=range(len(part.gm.graph.find_nodes(op="placeholder"))),
    )
    return captured.run, captured.islands[0]


def _time(function: Callable[[int], None]) -> float:
    started = time.thread_time()
    for i in range(CALLS):
        function(i)
    return (time.thread_time() - started) / CALLS * 1e6


if __name__ == "__main__":
    main()
