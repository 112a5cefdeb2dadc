"""The simulator as an engine: everything that the backend asks of CUDA, on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.engine import Function
from aot_cudagraphs.errors import CaptureRefusedError, ReleasedRecordingError
from aot_cudagraphs.refusals import named_refusal
from aot_cudagraphs.simulator.addresses import OutsideMemory, tensor_at
from aot_cudagraphs.simulator.pool import SimulatedPool, poison
from aot_cudagraphs.simulator.recorder import Recorder, is_capturing

__all__ = ["SimulatedEngine", "SimulatedRecording"]


class SimulatedRecording:
    """A captured function, as an `aot_cudagraphs.Recording`.

    Attributes:
        outputs: The leaves of what the function returned.
        replays: How often it was replayed.
    """

    def __init__(self, recorder: Recorder, outputs: list[Any]) -> None:
        self.outputs = outputs
        self.replays = 0
        self._pool: SimulatedPool | None = recorder.pool
        self._steps = recorder.steps
        self._outside = recorder.outside
        self._fresh = recorder.fresh
        self._dead = recorder.dead

    @property
    def operations(self) -> list[str]:
        """What was recorded, in order: ``["aten.mm.default", ...]``. Views run nothing and are not among them."""
        return [str(step.op) for step in self._steps]

    def replay(self) -> None:
        """Run what was recorded, at the addresses of then, with random numbers of now.

        Memory that the recording was given is poisoned before, as far as it was free when the recording began, and
        memory that it had given back at its end is poisoned after.

        Raises:
            ReleasedRecordingError: the recording has been released.
            FreedMemoryError: memory outside the pool is gone.
            CaptureRefusedError: this thread is capturing.
            ReplayMismatchError: an operation made a result of other sizes.
        """
        if self._pool is None:
            raise ReleasedRecordingError(
                "A recording was replayed after its release. Expected replay() before release(). Record again."
            )
        if is_capturing():
            raise CaptureRefusedError(named_refusal("nested-replay", "Recording.replay"))
        self._outside.check()
        self.replays += 1
        poison(self._fresh)
        with _compat.bare_dispatch():
            for step in self._steps:
                step.run()
        poison(self._dead)

    def release(self) -> None:
        """Give up the recorded operations and this recording's share of the pool. May be called twice."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            self.outputs = []
            self._steps, self._outside = [], OutsideMemory()
            pool.release()

    def __del__(self) -> None:
        self.release()


class SimulatedEngine:
    """Captures and replays on the CPU, as an `aot_cudagraphs.Engine`."""

    name = "simulated"

    def available_for(self, device: torch.device) -> bool:
        """Tell whether tensors on this device can be captured: those on the CPU."""
        return device.type == "cpu"

    def new_pool(self, device: torch.device | None = None) -> SimulatedPool:
        """Return a pool that holds no memory yet."""
        return SimulatedPool()

    def warm_up(self, function: Function, inputs: list[Any]) -> Any:
        """Run a function for good, and return what it returns. There is no stream to do it on."""
        return function(inputs)

    def record(
        self,
        function: Function,
        inputs: list[Any],
        pool: SimulatedPool,
        generators: Sequence[torch.Generator] = (),
    ) -> SimulatedRecording:
        """Capture one call, without effect on memory outside and on random numbers.

        Args:
            function: Called once, with ``inputs``, which it may empty.
            inputs: Strided CPU tensors and whatever else the function takes.
            pool: Where the function's tensors are to lie.
            generators: Generators other than the default one that the function draws from.

        Raises:
            CaptureRefusedError: the function did what a graph can't hold.
        """
        pool.acquire()
        try:
            recorder = Recorder(pool, generators)
            with recorder.recording():
                outputs = _compat.pytree.tree_leaves(function(inputs))
            return SimulatedRecording(recorder, outputs)
        except BaseException:
            pool.release()
            raise

    def unowned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor at the same address that does not hold the memory. Given away, it shows poison."""
        return tensor_at(tensor)
