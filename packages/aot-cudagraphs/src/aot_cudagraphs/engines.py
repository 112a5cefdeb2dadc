"""Which engine captures, by the name that the option ``capture`` gives it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from aot_cudagraphs.engine import Engine

__all__ = ["engine_for"]


@functools.cache
def engine_for(capture: Literal["cuda", "simulated"]) -> Engine:
    """Return the engine that captures on CUDA devices, or the one that simulates it."""
    if capture == "simulated":
        from aot_cudagraphs.simulator import SimulatedEngine

        # Each takes pools of its own kind only, which is what it is given.
        return cast("Engine", SimulatedEngine())
    from aot_cudagraphs.cuda_engine import CudaEngine

    return cast("Engine", CudaEngine())
