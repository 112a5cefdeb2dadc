"""What TorchScript saves and costs: step time, build time, and the time of one call of a fusion.

    python benchmarks/torchscript.py                 # a few minutes on a quiet core
    python benchmarks/torchscript.py --rounds 5 --only step

Step time: models trained, and run without gradients, under ``aot_eager`` and ``aot_ts_fusion`` in turns. In each
round every contender is timed once, and the ratio of the round's times is noted; printed are the median over rounds
and its quartiles. Build time: `ts_compile` and torch's own function of that name on the same graphs, until the second
call is done. Fusion: a TorchScript graph that calls a fusion, less the same graph without the call.

All times are the process's CPU time, so that others on the machine disturb less; there is one thread at work.
"""

from __future__ import annotations

import argparse
import copy
import operator
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from aot_core import aot_autograd
from aot_ts_fusion import Fusion, aot_ts_fusion, ts_compile


class SmallOperations(nn.Module):
    """Many operations on few elements: calling them takes longer than running them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return as many elements as there were."""
        for _ in range(20):
            x = torch.tanh(x * self.scale + 0.5) - x.sigmoid() * 0.1
        return x


def attention_block() -> nn.Module:
    """Return one encoder layer without dropout."""
    return nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return each model with an input. The first is bound by calls, the others by kernels."""
    torch.manual_seed(0)
    return {
        "small operations": (SmallOperations(), torch.randn(4, 16)),
        "perceptron": (
            nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)),
            torch.randn(64, 256),
        ),
        "convolutions": (
            nn.Sequential(
                *[
                    layer
                    for width in (3, 16, 16)
                    for layer in (nn.Conv2d(width, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
                ]
            ),
            torch.randn(8, 3, 32, 32),
        ),
        "attention": (attention_block(), torch.randn(8, 32, 64)),
    }


def training_step(run: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Return a function that makes one step."""
    parameters = list(model.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        run(x).square().mean().backward()

    return step


def inference_step(run: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Return a function that runs the model once."""

    def step() -> None:
        with torch.no_grad():
            run(x)

    return step


def repetitions(step: Callable[[], None], seconds: float) -> int:
    """Return how often a step fits into some time."""
    start = time.process_time()
    step()
    return max(1, int(seconds / (time.process_time() - start)))


def timed(step: Callable[[], None], count: int) -> float:
    """Return the seconds of one step."""
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def quartiles(values: Sequence[float]) -> str:
    """Return the median with the quartiles."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def step_times(rounds: int) -> None:
    """Print step times of ``aot_eager`` over those of ``aot_ts_fusion``."""
    print("step time: aot_eager / aot_ts_fusion, and eager / aot_ts_fusion")
    for kind, make_step in (("training", training_step), ("inference", inference_step)):
        for name, (model, x) in models().items():
            model.train(kind == "training")
            steps = {}
            for backend in ("aot_eager", aot_ts_fusion, None):
                torch.compiler.reset()
                run = model if backend is None else torch.compile(model, backend=backend)
                steps[backend] = make_step(run, model, x)
                for _ in range(3):
                    steps[backend]()
            # torch.compile forgets nothing while its functions live, so that all can be timed in turns.
            count = repetitions(steps[None], 0.02)
            times = [{backend: timed(step, count) for backend, step in steps.items()} for _ in range(rounds)]
            against_aot = [each["aot_eager"] / each[aot_ts_fusion] for each in times]
            against_eager = [each[None] / each[aot_ts_fusion] for each in times]
            print(
                f"  {kind:9} {name:17} {quartiles(against_aot)}; {quartiles(against_eager)}; "
                f"{min(each[aot_ts_fusion] for each in times) * 1e6:.0f} us a step",
                flush=True,
            )


def traced_graphs() -> dict[str, tuple[torch.fx.GraphModule, list[torch.Tensor]]]:
    """Return the forward and backward graph of each model, with inputs like theirs."""
    found: dict[str, tuple[torch.fx.GraphModule, list[torch.Tensor]]] = {}
    for name, (model, x) in models().items():
        torch.compiler.reset()

        def keep(stage: str, name: str = name) -> Callable[..., Any]:
            def compiler(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
                found[f"{name}, {stage}"] = (
                    torch.fx.GraphModule(gm, gm.graph),
                    [torch.ones_like(each, device="cpu") for each in map(real, inputs)],
                )
                return gm

            return compiler

        backend = aot_autograd(name="keeps_graphs", fw_compiler=keep("forward"), bw_compiler=keep("backward"))
        torch.compile(model, backend=backend)(x).square().mean().backward()
    return found


def real(fake: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the looks of a fake one."""
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)


def build_times(rounds: int) -> None:
    """Print build times over those of torch's own compiler."""
    from functorch.compile import ts_compile as torch_ts_compile

    print("build time, until the second call is done: ts_compile / torch's own; and milliseconds of ours")
    for name, (gm, inputs) in traced_graphs().items():
        ratios, ours = [], []
        for _ in range(rounds):
            taken = {}
            for compiler in (ts_compile, torch_ts_compile):
                # Torch's own changes what it is given.
                fresh = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
                start = time.process_time()
                compiled = compiler(fresh, inputs)
                built = time.process_time() - start
                for _ in range(2):
                    arguments = list(inputs)
                    start = time.process_time()
                    compiled(arguments)
                    built += time.process_time() - start
                taken[compiler] = built
            ratios.append(taken[ts_compile] / taken[torch_ts_compile])
            ours.append(taken[ts_compile] * 1e3)
        print(f"  {name:28} {quartiles(ratios)}; {min(ours):.1f} ms", flush=True)


def fusion_call(rounds: int) -> None:
    """Print the time of one call of a fusion from TorchScript."""
    fusion = Fusion(lambda inputs: inputs, 1, "nothing")

    def graph_with(calls: int) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        for _ in range(calls):
            called = graph.call_function(torch.ops.aot_ts_fusion.run_fusion.default, (fusion.number, [x]))
            x = graph.call_function(operator.getitem, (called, 0))
        graph.output((graph.call_function(torch.ops.aten.relu.default, (x,)),))
        return torch.fx.GraphModule({}, graph)

    x = torch.ones(4)
    without, with_calls = (ts_compile(graph_with(calls), [x]) for calls in (0, 20))
    found = []
    with torch.no_grad():
        for _ in range(max(rounds, 5)):
            plain = timed(lambda: without([x]), 2000)
            calling = timed(lambda: with_calls([x]), 2000)
            found.append((calling - plain) / 20 * 1e6)
    print(f"one call of a fusion from TorchScript: {quartiles(found)} us, at best {min(found):.2f} us")


PARTS = {"step": step_times, "build": build_times, "fusion": fusion_call}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", choices=list(PARTS))
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own compiler is deprecated
        for name, part in PARTS.items():
            if options.only in (None, name):
                part(options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
