"""The stages of a compile, tried one after the other until one fails."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aot_core.errors import AotError
from aot_registry import _compat
from aot_registry.bisecting.copies import Subject, working_dtype
from aot_registry.bisecting.errors import EagerFailureError
from aot_registry.bisecting.observation import Observation, observe, observe_in_float64
from aot_registry.bisecting.result import StageResult, Status
from aot_registry.bisecting.tolerance import Failure, Yardstick
from aot_registry.bisecting.trial import STAGES, Limits, Stage, Trial

__all__ = ["RUNS_EXPECTED", "Advance", "Bench", "Fault", "first_failing_stage"]

Advance = Callable[[str, int], None]
"""``advance(what, steps)``: tells a progress bar what is going on, and how many more steps are done."""

RUNS_EXPECTED = 20
"""Runs of a bisection that finds a fault in a graph of some hundred nodes: what a progress bar counts up to."""

MESSAGE_LENGTH = 300


class Bench:
    """Runs one subject, as often as needed, and compares each run with eager's.

    Args:
        subject: What is run.
        backend: What it is compiled with.
        options: As for ``torch.compile``.
        seed: The same for all runs.
        advance: Told of each run.

    Attributes:
        yardstick: Eager's runs.
        runs: How often the subject was run.

    Raises:
        EagerFailureError: the subject fails in eager.
    """

    def __init__(
        self,
        subject: Subject,
        backend: Callable[..., Any],
        *,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        advance: Advance = lambda what, steps: None,
    ) -> None:
        self.subject = subject
        self.backend = backend
        self.options = options
        self.seed = seed
        self.runs = 0
        self._advance = advance
        eager = self._run_eager("eager")
        again = self._run_eager("eager, a second time")
        self.yardstick = Yardstick(eager, again, self._run_exact())

    def try_stage(
        self, stage: Stage, limits: Limits | None = None, *, keep_values: bool = False
    ) -> tuple[list[Failure], Trial]:
        """Run the subject compiled up to a stage.

        Returns:
            What differs from eager, an exception included, and the trial with what it recorded.
        """
        trial = Trial(self.backend, stage, limits, options=self.options, keep_values=keep_values)
        self._advance(stage if limits is None else f"{stage}: halving", 0)
        try:
            with trial.entered():
                seen = self._observe(lambda model: torch.compile(model, backend=trial))
        except Exception as error:
            return [_exception(error)], trial
        finally:
            self._advance(stage, 1)
        return self.yardstick.failures(seen), trial

    def shows(self, fault: Sequence[Failure], stage: Stage, limits: Limits) -> bool:
        """Tell whether a run fails in a way in which another one did."""
        failures, _ = self.try_stage(stage, limits)
        return not {_signature(failure) for failure in fault}.isdisjoint(map(_signature, failures))

    def _observe(self, call: Callable[..., Any]) -> Observation:
        # All runs share the code of the model, and Dynamo keeps what it has compiled for it.
        torch.compiler.reset()
        self.runs += 1
        return observe(self.subject, call, seed=self.seed)

    def _run_eager(self, what: str) -> Observation:
        self._advance(what, 0)
        try:
            return self._observe(lambda model: model)
        except AotError:
            raise
        except Exception as error:
            raise EagerFailureError(
                f"The model fails without torch.compile: {_one_line(error)}. Run it in eager first."
            ) from error
        finally:
            self._advance(what, 1)

    def _run_exact(self) -> Observation | None:
        dtype = working_dtype(self.subject)
        if dtype == torch.float64:
            return None  # eager is that run
        self._advance("float64", 0)
        self.runs += 1
        try:
            return observe_in_float64(self.subject, seed=self.seed, drawn_as=dtype)
        except Exception:
            # A custom operator without a float64 kernel, a type written into the model, a mixed memory: then
            # eager itself is what compiled runs are compared with.
            return None
        finally:
            self._advance("float64", 1)


@dataclasses.dataclass(frozen=True)
class Fault:
    """The first stage that fails, and how.

    Args:
        results: All stages.
        stage: The first that fails, or None. ``"eager again"`` if eager itself does not repeat.
        failures: What it does otherwise.
        trial: Its run.
    """

    results: list[StageResult]
    stage: str | None = None
    failures: list[Failure] = dataclasses.field(default_factory=list)
    trial: Trial | None = None


def first_failing_stage(bench: Bench) -> Fault:
    """Try all stages in order, and stop at the first that fails."""
    yardstick = bench.yardstick
    # What eager does otherwise the second time must be more than its rounding to count.
    repeated = Yardstick(yardstick.eager, yardstick.eager, yardstick.exact).failures(yardstick.again)
    results = [StageResult("eager again", "differs" if repeated else "ok", tuple(repeated))]
    if repeated:
        return Fault(_with_skipped(results), "eager again", repeated)
    for stage in STAGES:
        started = time.perf_counter()
        failures, trial = bench.try_stage(stage)
        seconds = time.perf_counter() - started
        name: str = stage
        if stage == "aot" and trial.captured and not trial.reached_aot:
            # The backend hands nothing to AOTAutograd: that was all of it.
            name = "backend"
        results.append(StageResult(name, _status(failures), tuple(failures), seconds))
        if failures:
            return Fault(_with_skipped(results), name, failures, trial)
        if name == "backend":
            break
    return Fault(_with_skipped(results))


def _status(failures: Sequence[Failure]) -> Status:
    if any(failure.aspect == "exception" for failure in failures):
        return "raises"
    return "differs" if failures else "ok"


def _with_skipped(results: list[StageResult]) -> list[StageResult]:
    """Add the stages that were not tried, and put all in order."""
    tried = {result.stage: result for result in results}
    first = [result for result in results if result.stage not in STAGES]
    return [*first, *(tried.get(stage) or StageResult(stage, "skipped") for stage in STAGES)]


def _signature(failure: Failure) -> tuple[str, str]:
    # Of an exception, its type: the message may name a graph, of which there are many.
    detail = failure.detail.partition(":")[0] if failure.aspect == "exception" else ""
    return failure.quantity, failure.aspect + detail


def _exception(error: Exception) -> Failure:
    return Failure("the run", "exception", _one_line(_compat.cause_of(error)))


def _one_line(error: BaseException) -> str:
    # What Dynamo appends to any message: how to see more of its own stack.
    message = " ".join(str(error).partition("\n\nSet TORCHDYNAMO_VERBOSE")[0].split())
    text = f"{type(error).__name__}: {message}".rstrip(".")
    return text if len(text) <= MESSAGE_LENGTH else f"{text[:MESSAGE_LENGTH]}…"
