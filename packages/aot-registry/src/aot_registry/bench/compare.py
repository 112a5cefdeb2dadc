"""The comparison: every contender trains the same workload, in turns, in one process."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import traceback
from collections.abc import Callable, Sequence

import torch

from aot_core.errors import AotError
from aot_registry import _compat
from aot_registry.bench.contenders import Contender
from aot_registry.bench.errors import WorkloadTrainingError
from aot_registry.bench.measure import Plan, compile_seconds, ratio_to, rotated
from aot_registry.bench.memory import measure_peak_bytes
from aot_registry.bench.result import ContenderResult, Verdict, WorkloadResult
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads.workload import Workload
from aot_registry.bench.yardstick import eager_spread, max_deviation

__all__ = ["RELATIVE_TOLERANCE", "Advance", "compare"]

RELATIVE_TOLERANCE = 1e-4
"""A deviation from eager's loss curve up to this part of eager's largest loss needs no explanation."""

SPREADS = 3
"""How many times as far as eager from itself a right backend may be; both are the largest of many numbers."""

Advance = Callable[[str, int], None]
"""``advance(what, steps)``: tells a progress bar what is going on, and how many more steps are done."""


@dataclasses.dataclass
class _Entry:
    """A contender under way."""

    contender: Contender
    run: TrainingRun | None = None
    failure: Exception | None = None
    warm_up_seconds: float = 0.0
    round_seconds: list[float] = dataclasses.field(default_factory=list)
    peak_bytes: int | None = None

    @property
    def alive(self) -> bool:
        return self.contender.availability.usable and self.failure is None


def compare(
    workload: Workload,
    contenders: Sequence[Contender],
    *,
    plan: Plan,
    seed: int,
    advance: Advance = lambda what, steps: None,
) -> WorkloadResult:
    """Train a workload under each usable contender and compare with eager.

    A contender that raises gets its row with the reason, and the others go on. Code that this process has
    compiled before is forgotten, as by ``torch.compiler.reset()``.

    Args:
        workload: What to train; its model is copied for each contender.
        contenders: Eager first.
        plan: How many steps.
        seed: Seeds the random numbers of every step, the same for all contenders.
        advance: Called at each turn.

    Raises:
        WorkloadContractError: the loss is not a tensor with one element.
        WorkloadTrainingError: eager itself fails.
    """
    # Compiled code of an earlier comparison must not serve this one. It also imports Dynamo, some seconds
    # that would otherwise count as compile time of whoever compiles first.
    torch.compiler.reset()
    entries = [_Entry(contender) for contender in contenders]
    # All contenders share the code object of the model's forward, and so Dynamo's limit on its variants.
    with _compat.recompile_limit_raised_for(len(entries)):
        _take_turns(entries, workload, plan, seed, advance)
    eager = entries[0]
    tolerance = _tolerance(_trained(eager).losses)
    rows = [_row(entry, eager, plan) for entry in entries]
    spread = None
    if any(row.max_deviation is not None and not row.max_deviation <= tolerance for row in rows):
        advance("eager: compared with itself", 0)
        spread = eager_spread(workload, _trained(eager).losses, seed=seed)
    torch.compiler.reset()
    return WorkloadResult(
        workload=workload.name,
        device=str(workload.device),
        torch_version=torch.__version__,
        threads=torch.get_num_threads(),
        seed=seed,
        steps=plan.steps,
        rounds=plan.rounds,
        warm_up=plan.warm_up,
        tolerance=tolerance,
        eager_spread=spread,
        contenders=tuple(
            dataclasses.replace(row, verdict=_verdict(row.max_deviation, tolerance, spread)) for row in rows
        ),
    )


def _take_turns(entries: list[_Entry], workload: Workload, plan: Plan, seed: int, advance: Advance) -> None:
    def turn(entry: _Entry, what: str, steps: int, action: Callable[[], None]) -> None:
        if not entry.alive:
            return
        advance(f"{entry.contender.backend}: {what}", 0)
        try:
            action()
        except Exception as error:
            if entry is entries[0]:
                if isinstance(error, AotError):
                    raise
                raise WorkloadTrainingError(
                    f"Workload {workload.name} fails in eager itself: {_summary(error).rstrip('.')}. "
                    "Train it without torch.compile first."
                ) from error
            entry.failure = error
        advance(entry.contender.backend, steps)

    def begin(entry: _Entry) -> None:
        entry.run = TrainingRun(workload, entry.contender.compile_model, seed)
        entry.warm_up_seconds = entry.run.take_steps(plan.warm_up)

    def train(entry: _Entry) -> None:
        entry.round_seconds.append(_trained(entry).take_steps(plan.steps) / plan.steps)

    def measure(entry: _Entry) -> None:
        entry.peak_bytes = measure_peak_bytes(_trained(entry))

    for entry in entries:
        turn(entry, "compile", plan.warm_up, functools.partial(begin, entry))
    for number in range(plan.rounds):
        for entry in rotated(entries, number):
            turn(entry, f"round {number + 1}", plan.steps, functools.partial(train, entry))
    for entry in entries:
        turn(entry, "peak memory", 1, functools.partial(measure, entry))


def _row(entry: _Entry, eager: _Entry, plan: Plan) -> ContenderResult:
    name, availability = entry.contender.backend, entry.contender.availability
    if not availability.usable:
        reason = ". ".join(part.rstrip(".") for part in (availability.reason, availability.remedy) if part)
        return ContenderResult(name, "not usable", f"{reason}.")
    losses = tuple(entry.run.losses) if entry.run else ()
    if entry.failure is not None:
        return ContenderResult(
            name,
            "failed",
            f"{_summary(entry.failure)} (after {len(losses)} steps)",
            traceback="".join(traceback.format_exception(entry.failure)),
            losses=losses,
        )
    run = _trained(entry)
    step_seconds = statistics.median(entry.round_seconds)
    fallbacks = [
        decision for report in run.reports for decision in report.decisions if decision.action == "fallback"
    ]
    reported = bool(run.reports) or entry is eager
    return ContenderResult(
        name,
        "trained",
        availability.reason,
        losses=losses,
        max_deviation=max_deviation(run.losses, _trained(eager).losses),
        step_seconds=step_seconds,
        step_ratio=ratio_to(entry.round_seconds, eager.round_seconds),
        peak_bytes=entry.peak_bytes,
        peak_ratio=entry.peak_bytes / eager.peak_bytes if entry.peak_bytes and eager.peak_bytes else None,
        compile_seconds=(
            0.0 if entry is eager else compile_seconds(entry.warm_up_seconds, plan.warm_up, step_seconds)
        ),
        backend_compile_seconds=math.fsum(report.compile_seconds for report in run.reports)
        if reported
        else None,
        graphs=run.graphs,
        fallbacks=len(fallbacks) if reported else None,
        fallback_reasons=tuple(dict.fromkeys(str(decision) for decision in fallbacks)),
    )


def _trained(entry: _Entry) -> TrainingRun:
    assert entry.run is not None
    return entry.run


def _verdict(deviation: float | None, tolerance: float, spread: float | None) -> Verdict | None:
    if deviation is None:
        return None
    if deviation <= tolerance:
        return "follows"
    return "within spread" if spread is not None and deviation <= SPREADS * spread else "differs"


def _tolerance(losses: Sequence[float]) -> float:
    finite = [abs(loss) for loss in losses if math.isfinite(loss)]
    return RELATIVE_TOLERANCE * max(finite, default=1.0)


def _summary(error: Exception, limit: int = 240) -> str:
    """Return the start of a message on one line: torch's run over dozens."""
    # What Dynamo appends to any message: how to see more of its own stack.
    message = str(error).partition("\n\nSet TORCHDYNAMO_VERBOSE")[0]
    text = f"{type(error).__name__}: {' '.join(message.split())}"
    return text if len(text) <= limit else f"{text[:limit]}…"
