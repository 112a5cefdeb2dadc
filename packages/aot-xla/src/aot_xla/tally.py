"""What compiled graphs did on XLA, counted in their reports: that a model ran there is then a fact.

Each stage of a `CompileReport` has its number of operations and the seconds spent compiling it. These backends add
what the stage does when it is called.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aot_core import CompileReport

if TYPE_CHECKING:
    import torch

__all__ = ["Activity", "Tally", "activity"]


@dataclasses.dataclass(frozen=True)
class Activity:
    """Counts since a graph, or all graphs of some reports, were compiled.

    Args:
        xla_executions: Computations that XLA ran.
        xla_compilations: Computations that XLA compiled: one per stage, and one more for each new shape.
        tensors_to_xla: Tensors copied to the XLA device.
        bytes_to_xla: Their size.
        tensors_from_xla: Tensors copied from there to where they were promised.
        bytes_from_xla: Their size.
    """

    xla_executions: int = 0
    xla_compilations: int = 0
    tensors_to_xla: int = 0
    bytes_to_xla: int = 0
    tensors_from_xla: int = 0
    bytes_from_xla: int = 0

    def __sub__(self, earlier: Activity) -> Activity:
        """Return what was done since an earlier count."""
        now, then = dataclasses.astuple(self), dataclasses.astuple(earlier)
        return Activity(*(a - b for a, b in zip(now, then, strict=True)))


_NAMES = [field.name for field in dataclasses.fields(Activity)]


def activity(*reports: CompileReport) -> Activity:
    """Sum up what the graphs of these reports have done so far, forwards and backwards.

    Args:
        reports: As `aot_core.record_reports` collects them. Read when this is called: the counts go on.
    """
    stages = [stage for report in reports for stage in list(report.stages.values())]
    return Activity(*(int(sum(stage.get(name, 0) for stage in stages)) for name in _NAMES))


class Tally:
    """Counts for one stage of one graph.

    Args:
        report: Where the counts stand.
        stage: Under which stage.
    """

    def __init__(self, report: CompileReport, stage: str) -> None:
        self._report = report
        self._stage = stage
        self._lock = threading.Lock()

    def add(self, name: str, count: int) -> int:
        """Add to a count, named as in `Activity`, and return it."""
        with self._lock:
            # Looked up each time: the wrapper fills in the stage's numbers when its compiler has returned.
            numbers = self._report.stages.setdefault(self._stage, {})
            numbers[name] = numbers.get(name, 0) + count
            return int(numbers[name])

    def add_transfers(self, direction: str, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that were copied; ``direction`` is ``"to_xla"`` or ``"from_xla"``."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        if sizes:
            self.add(f"tensors_{direction}", len(sizes))
            self.add(f"bytes_{direction}", sum(sizes))
