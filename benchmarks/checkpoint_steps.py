"""Real training steps: planned memory against eager PyTorch, and against `torch.utils.checkpoint` at equal peak.

    python benchmarks/checkpoint_steps.py [--models NAME ...] [--rounds N] [--cost-model eager|profile]

For each model, on the CPU with one thread:

    eager         the step as it is
    checkpoint    each block, or every second one, under torch.utils.checkpoint (non-reentrant)
    planned       aot_mem_efficient, once at half of its peak without a plan, and once within the very peak that
                  each way of checkpointing was measured to have

Peaks are the allocator's own, from the start of a step to its end, without what is there before. Times are CPU
seconds of this process; contenders take turns, and of each the fastest round is taken. Losses are compared over
five steps of SGD, from the same parameters and random numbers.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from corpus.models import MODELS
from rows import Row, print_rows
from torch import nn
from torch.utils.checkpoint import checkpoint

import aot_core
from aot_partition import format_bytes, trace_allocations
from aot_registry.bench.workloads import build_workload

STEPS = 5


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, one batch, and where its blocks are."""

    name: str
    model: nn.Module
    batch: tuple[torch.Tensor, torch.Tensor]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    blocks: Callable[[nn.Module], Sequence[tuple[nn.Module, str]]]


class Checkpointed(nn.Module):
    """Computes a module again in the backward."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(self.inner, *inputs, use_reentrant=False)
        return result


def of_list(path: str) -> Callable[[nn.Module], list[tuple[nn.Module, str]]]:
    """Return what names the blocks of a list of modules."""

    def find(model: nn.Module) -> list[tuple[nn.Module, str]]:
        parent = model.get_submodule(path)
        return [(parent, name) for name, block in parent.named_children() if not isinstance(block, nn.Conv2d)]

    return find


def group_digits(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Make blocks of convolution, norm and activation."""
    layers = list(model.features)  # type: ignore[arg-type]
    model.features = nn.Sequential(*(nn.Sequential(*layers[k : k + 3]) for k in range(0, len(layers), 3)))
    return of_list("features")(model)


def mean_square(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def subjects(names: Sequence[str]) -> list[Subject]:
    found = []
    for name in names:
        torch.manual_seed(0)
        if name in ("digits-conv", "text-gpt"):
            workload = build_workload(name, seed=0)
            blocks = group_digits if name == "digits-conv" else of_list("blocks")
            batch = tuple(workload.batches[0])
            found.append(Subject(name, workload.model, batch, workload.loss_fn, blocks))  # type: ignore[arg-type]
        else:
            depth, size, path = CORPUS[name]
            build, make_input = MODELS[name]
            x = make_input(size)
            found.append(Subject(name, build(depth), (x, x), mean_square, of_list(path)))
    return found


CORPUS = {"bert": (4, 16, "blocks"), "resnet": (6, 8, "blocks"), "densenet": (12, 8, "layers")}
NAMES = ("digits-conv", "text-gpt", *CORPUS)


class Contender:
    """One way to run a step."""

    def __init__(
        self, subject: Subject, *, every: int = 0, budget: float | int | None = None, cost: str = "eager"
    ):
        self.subject = subject
        self.model = copy.deepcopy(subject.model).train()
        if every:
            for parent, name in subject.blocks(self.model)[::every]:
                parent._modules[name] = Checkpointed(parent._modules[name])  # type: ignore[arg-type]
        self.function: Callable[..., torch.Tensor] = self._loss
        if budget is not None:
            options = {"budget": budget, "cost_model": cost}
            self.function = torch.compile(self._loss, backend="aot_mem_efficient", options=options)
        self.seconds: list[float] = []

    def _loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.subject.loss(self.model(x), y)

    def step(self) -> torch.Tensor:
        self.model.zero_grad(set_to_none=True)
        loss = self.function(*self.subject.batch)
        loss.backward()
        return loss.detach()

    def losses(self) -> list[float]:
        torch.manual_seed(1)
        found = []
        for _ in range(STEPS):
            found.append(float(self.step()))
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad
        return found

    def peak(self) -> int:
        self.step()
        self.model.zero_grad(set_to_none=True)
        with trace_allocations() as trace:
            self.function(*self.subject.batch).backward()
        return trace.peak

    def time(self) -> None:
        started = time.process_time()
        self.step()
        self.seconds.append(time.process_time() - started)


@dataclasses.dataclass
class Results:
    """What was measured so far: per model, and for our time over checkpoint's per way of checkpointing."""

    differences: list[float] = dataclasses.field(default_factory=list)
    kept: list[bool] = dataclasses.field(default_factory=list)
    refused: int = 0
    ratios: list[float] = dataclasses.field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of what was measured."""
        worst = max(self.differences)
        yield Row("real steps, losses over eager's", f"differ by {worst:.1e}", "1e-5", worst <= 1e-5)
        yield Row(
            "real steps, measured peak within half of that without a plan",
            f"{sum(self.kept)} of {len(self.kept)} models; {self.refused} more have no such plan",
            "all",
            all(self.kept) if self.kept else None,
        )
        if self.ratios:
            slowest = max(self.ratios)
            yield Row(
                "real steps, time over checkpoint's at equal peak",
                f"{min(self.ratios):.2f} to {slowest:.2f}",
                "1",
                slowest <= 1,
            )


def compare(subject: Subject, rounds: int, cost: str, results: Results) -> None:
    """Measure one model, and print it."""
    eager = Contender(subject)
    whole = Contender(subject, budget=1.0, cost=cost)
    half = Contender(subject, budget=0.5, cost=cost)
    expected = eager.losses()
    with aot_core.record_reports() as reports:
        found = half.losses()
    refusals = [d.detail for report in reports for d in report.decisions if d.code == "budget-too-small"]
    difference = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    unplanned, halved = whole.peak(), half.peak()
    kept = "kept" if halved <= 0.5 * unplanned else "NOT KEPT"
    results.differences.append(difference)
    results.refused += bool(refusals)
    if not refusals:
        results.kept.append(halved <= 0.5 * unplanned)
    else:
        kept = "half is refused, and the smallest peak taken: " + refusals[0].partition("bytes. ")[2]
    print(
        f"{subject.name:<12} at half: losses differ by {difference:.1e}, peak {halved / unplanned:.3f} of the peak "
        f"without a plan ({kept})",
        flush=True,
    )
    for every in (1, 2):
        by_hand = Contender(subject, every=every)
        peak = by_hand.peak()
        planned = Contender(subject, budget=peak, cost=cost)
        reached = planned.peak()
        contenders = (eager, by_hand, planned)
        for _ in range(rounds):
            for contender in contenders:
                contender.time()
        fastest = [min(contender.seconds) for contender in contenders]
        results.ratios.append(fastest[2] / fastest[1])
        print(
            f"{subject.name:<12} checkpoint of {'each block' if every == 1 else 'every second block'}: peak "
            f"{format_bytes(peak)}, planned {format_bytes(reached)}; over eager's time checkpoint "
            f"{fastest[1] / fastest[0]:.2f}, planned {fastest[2] / fastest[0]:.2f}; planned over checkpoint "
            f"{results.ratios[-1]:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cost-model", default="eager", choices=("eager", "profile"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}; CPU seconds, the fastest of {arguments.rounds}")
    results = Results()
    for subject in subjects(arguments.models):
        torch.compiler.reset()
        compare(subject, arguments.rounds, arguments.cost_model, results)
    print_rows(results.rows())


if __name__ == "__main__":
    main()
