"""What a bisection found, as plain data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from aot_registry.bisecting.tolerance import Failure

__all__ = ["BisectResult", "Culprit", "StageResult", "Status"]

Status = Literal["ok", "differs", "raises", "skipped"]


@dataclasses.dataclass(frozen=True)
class StageResult:
    """How a model does when compiled up to one stage.

    Args:
        stage: ``"eager again"``, ``"dynamo"``, ``"aot"``, ``"decompositions"``, ``"partition"`` or ``"backend"``.
        status: ``"skipped"``: an earlier stage failed, or the backend has no such stage.
        failures: What it does otherwise than eager.
        seconds: Wall time of the run, compiling included.
    """

    stage: str
    status: Status
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {**dataclasses.asdict(self), "failures": [failure.to_dict() for failure in self.failures]}


@dataclasses.dataclass(frozen=True)
class Culprit:
    """Where in a stage the fault is, as far as it could be followed.

    Args:
        graph: Number of the graph that Dynamo captured, in the order in which they are called.
        role: ``"captured"``, ``"joint"``, ``"forward"``, ``"backward"`` or ``"inference"``: which graph ``node`` is of.
        node: Name of the first wrong node.
        operator: What it calls, or, where a decomposition is wrong, what that decomposes.
        source: The user's line that called it, ``"model.py:41"``.
        cause: What is wrong with it, in a few words.
        nodes: How many steps the graph has.
    """

    graph: int | None = None
    role: str | None = None
    node: str | None = None
    operator: str | None = None
    source: str | None = None
    cause: str = ""
    nodes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        parts = []
        if self.graph is not None:
            parts.append(f"graph {self.graph}" + (f", {self.role}" if self.role else ""))
        if self.node is not None:
            what = f"node {self.node} = {self.operator}" if self.operator else f"node {self.node}"
            parts.append(what + (f" ({self.source})" if self.source else ""))
        if self.cause:
            parts.append(self.cause)
        return ": ".join(parts) if parts else "not found"


@dataclasses.dataclass(frozen=True)
class BisectResult:
    """What a bisection found. Print it.

    Args:
        backend: What was bisected.
        torch_version: ``torch.__version__``.
        seed: Of all runs.
        reference: ``"float64"``, or ``"eager"`` where the model can't be run in float64.
        stages: In order.
        stage: The first that errs or drifts; None if none does.
        culprit: Where in it.
        runs: How often the model was run.
        reproducer: Path of the file that was written.
        reproduces: Whether running that file showed the fault; None if none was written.
    """

    backend: str
    torch_version: str
    seed: int
    reference: str
    stages: tuple[StageResult, ...]
    stage: str | None = None
    culprit: Culprit | None = None
    runs: int = 0
    reproducer: str | None = None
    reproduces: bool | None = None

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What the stage that fails does otherwise than eager."""
        return next((each.failures for each in self.stages if each.stage == self.stage), ())

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "stages": [stage.to_dict() for stage in self.stages],
            "culprit": None if self.culprit is None else self.culprit.to_dict(),
        }

    def __str__(self) -> str:
        from aot_registry.bisecting.text import format_result

        return format_result(self)
