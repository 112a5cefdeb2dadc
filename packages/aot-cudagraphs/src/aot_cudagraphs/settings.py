"""The options of this package's backend, and of whoever captures without it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from aot_core import Settings

__all__ = ["CaptureSettings"]


@dataclasses.dataclass(frozen=True)
class CaptureSettings(Settings):
    """How graphs are captured.

    Args:
        max_graphs: Recordings kept for one island: one for each combination of shapes, dtypes and numbers that it is
            called with. The least recently used one makes room. Where they would come and go all the time, further
            combinations run uncaptured.
        memory_budget: Limit, in bytes, on what the recordings of one compiled graph, forward and backward, hold. What
            would exceed it runs uncaptured. None is no limit.
        warmup: Calls, for each combination, that run uncaptured before the next one is recorded. They are real calls:
            their number changes no result.
        outputs: ``"clone"`` gives the caller memory of its own; ``"pool"`` hands out the recording's memory without
            a copy, and another step does not touch it before it is dropped.
        capture: ``"cuda"`` captures on CUDA devices and runs graphs of other devices as they are; ``"simulated"``
            has the simulator capture graphs on the CPU.
        strict: Raise where a capture fails, rather than run that part uncaptured.
    """

    max_graphs: int = 8
    memory_budget: int | None = None
    warmup: int = 1
    outputs: Literal["clone", "pool"] = "clone"
    capture: Literal["cuda", "simulated"] = "cuda"

    def __post_init__(self) -> None:
        if self.max_graphs < 1:
            raise ValueError(f"max_graphs must be at least 1, got {self.max_graphs}")
        if self.warmup < 0:
            raise ValueError(f"warmup must not be negative, got {self.warmup}")
        if self.memory_budget is not None and self.memory_budget < 0:
            raise ValueError(f"memory_budget must not be negative, got {self.memory_budget}")
