"""What a comparison found, as plain data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from aot_registry.bench.measure import Ratio

__all__ = ["ContenderResult", "Status", "Verdict", "WorkloadResult"]

Status = Literal["trained", "not usable", "failed"]
Verdict = Literal["follows", "within spread", "differs"]


@dataclasses.dataclass(frozen=True)
class ContenderResult:
    """One row. What could not be measured is None.

    Args:
        backend: Name for ``torch.compile``; ``"eager"`` is the model without it.
        status: ``"not usable"``: its probe said no, and it was not tried. ``"failed"``: it raised while it
            was trained.
        reason: Why it was not usable or how it failed; what its probe found, when it trained.
        traceback: Of the failure.
        losses: One per step, up to the failure.
        max_deviation: Largest ``|loss - eager's loss|`` over the steps.
        verdict: Of that. ``"follows"``: up to the tolerance. ``"within spread"``: more, but no more than
            other dropout masks and rounding explain, see `aot_registry.bench.yardstick`. ``"differs"``: more
            than that; a gradient may be wrong.
        step_seconds: Median time of a step over the rounds.
        step_ratio: Step time over eager's; see `aot_registry.bench.measure`.
        peak_bytes: Peak memory of a step; see `aot_registry.bench.memory`.
        peak_ratio: That over eager's.
        compile_seconds: What the first steps cost beyond later ones.
        backend_compile_seconds: The part of it spent in the backend, from its reports. None for a backend
            that makes no `CompileReport`; so is ``fallbacks``.
        graphs: Graphs compiled.
        fallbacks: Decisions to run something uncompiled.
        fallback_reasons: Those decisions, in words, each once.
    """

    backend: str
    status: Status
    reason: str = ""
    traceback: str | None = None
    losses: tuple[float, ...] = ()
    max_deviation: float | None = None
    verdict: Verdict | None = None
    step_seconds: float | None = None
    step_ratio: Ratio | None = None
    peak_bytes: int | None = None
    peak_ratio: float | None = None
    compile_seconds: float | None = None
    backend_compile_seconds: float | None = None
    graphs: int | None = None
    fallbacks: int | None = None
    fallback_reasons: tuple[str, ...] = ()

    @property
    def final_loss(self) -> float | None:
        """Loss of the last step."""
        return self.losses[-1] if self.losses else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready data; losses and deviations that are not finite become None."""
        data = dataclasses.asdict(self)
        data["final_loss"] = self.final_loss
        return {key: _finite(value) for key, value in data.items()}


@dataclasses.dataclass(frozen=True)
class WorkloadResult:
    """One table.

    Args:
        workload: Name of the workload.
        device: Where it was trained, ``"cpu"`` or ``"cuda:0"``.
        torch_version: ``torch.__version__``.
        threads: CPU threads of an operation.
        seed: Seed of parameters, batches and random numbers.
        steps: Steps of a turn.
        rounds: Timed turns of each contender.
        warm_up: Untimed steps before them.
        tolerance: Deviation that needs no explanation.
        eager_spread: How far eager leaves its own curve under other random numbers and rounding; None where
            no contender made it necessary to know.
        contenders: Rows, eager first.
    """

    workload: str
    device: str
    torch_version: str
    threads: int
    seed: int
    steps: int
    rounds: int
    warm_up: int
    tolerance: float
    eager_spread: float | None
    contenders: tuple[ContenderResult, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-ready data."""
        data = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "contenders"
        }
        data = {key: _finite(value) for key, value in data.items()}
        return {**data, "contenders": [contender.to_dict() for contender in self.contenders]}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
