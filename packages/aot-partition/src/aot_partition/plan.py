"""What a planner decided, as plain data for people: which values are saved, which recomputed, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from aot_partition.budget import format_bytes
from aot_partition.extract import Assignment
from aot_partition.memory.liveness import StepMemory

__all__ = ["PartitionPlan", "PlannedValue"]


@dataclasses.dataclass(frozen=True)
class PlannedValue:
    """A value of the forward that the backward needs.

    Args:
        name: Node that makes it.
        operation: What it calls, ``"aten.mm.default"``.
        nbytes: What saving it takes.
        seconds: What computing it takes, once.
        reason: Why it is saved or recomputed, as a stable identifier; see `REASONS`.
        detail: The same in a sentence.
        source: The user's line that it comes from, ``"model.py:41"``, where known.
        times: How often the backward computes it; 0 when it is saved.
    """

    name: str
    operation: str
    nbytes: int
    seconds: float
    reason: str
    detail: str
    source: str | None = None
    times: int = 0


REASONS = {
    "read-by-backward": "the backward reads it, and there is room for it",
    "recomputed-from": "other values are recomputed from it",
    "cannot-be-recomputed": "computing it again would not give the same, or do something twice",
    "must-save": "the user's checkpointing asks for it",
    "must-recompute": "the user's checkpointing asks for it",
    "no-room": "there is no room for it, and it is among the cheapest to compute again",
    "leads-to-recomputed": "a recomputed value is computed from it",
    "saved-then-recomputed": "there is room for it only until its first use",
}
"""Why a value is saved or recomputed."""


@dataclasses.dataclass(frozen=True)
class PartitionPlan:
    """A plan of one training step. Sizes in bytes, times in seconds; static memory is part of no size.

    Args:
        budget: What the peak had to stay within.
        memory: The step as planned, node by node.
        unplanned: The step that saves all that the backward reads, node by node.
        saved: What the forward keeps for the backward, the largest first.
        recomputed: What the backward computes again, the longest first.
        seconds: The step without recomputation, by the cost model.
        recompute_seconds: What recomputation adds.
        origin: Which member of the planner's portfolio made the plan.
        assignment: What `extract` makes the two graphs of. Refers to the joint graph by position; not part of
            `to_dict`.
    """

    budget: int
    memory: StepMemory
    unplanned: StepMemory
    saved: tuple[PlannedValue, ...]
    recomputed: tuple[PlannedValue, ...]
    seconds: float
    recompute_seconds: float
    origin: str
    assignment: Assignment = dataclasses.field(repr=False)

    @property
    def peak(self) -> int:
        """Predicted peak of the step, scratch memory of kernels included."""
        return self.memory.peak

    @property
    def unplanned_peak(self) -> int:
        """Peak of the step without a plan."""
        return self.unplanned.peak

    @property
    def overhead(self) -> float:
        """How much longer the step takes, as a fraction of the step without recomputation."""
        return self.recompute_seconds / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        return {
            "budget": self.budget,
            "peak": self.peak,
            "unplanned_peak": self.unplanned_peak,
            "seconds": self.seconds,
            "recompute_seconds": self.recompute_seconds,
            "overhead": self.overhead,
            "origin": self.origin,
            "saved": [dataclasses.asdict(value) for value in self.saved],
            "recomputed": [dataclasses.asdict(value) for value in self.recomputed],
            "memory": self.memory.to_dict(),
            "unplanned": self.unplanned.to_dict(),
        }

    def to_text(self, limit: int = 12) -> str:
        """Return a table for people.

        Args:
            limit: How many rows to show of saved and of recomputed values.
        """
        head = [
            ("", "without a plan", "planned"),
            ("peak", format_bytes(self.unplanned_peak), format_bytes(self.peak)),
            ("in the forward", *_two(self, "forward_peak")),
            ("in the backward", *_two(self, "backward_peak")),
            ("saved between", *_two(self, "saved_bytes")),
            ("recomputation", "0.0 %", f"{100 * self.overhead:.1f} %"),
        ]
        lines = [
            *_table(head),
            "",
            f"budget {format_bytes(self.budget)}; parameters and inputs, {format_bytes(self.memory.static_bytes)}, "
            "come on top",
        ]
        for title, values in (("saved", self.saved), ("recomputed", self.recomputed)):
            rows = [(title, "bytes", "µs", "times", "why", "where")]
            rows += [
                (
                    value.name,
                    format_bytes(value.nbytes),
                    f"{1e6 * value.seconds:.0f}",
                    str(value.times or "-"),
                    value.reason,
                    value.source or "-",
                )
                for value in values[:limit]
            ]
            lines += ["", *_table(rows)]
            if len(values) > limit:
                lines.append(f"and {len(values) - limit} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def _two(plan: PartitionPlan, field: str) -> tuple[str, str]:
    return format_bytes(getattr(plan.unplanned, field)), format_bytes(getattr(plan.memory, field))


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align columns: the first to the left, numbers to the right, text after them to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, 4, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
