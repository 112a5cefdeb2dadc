"""What a backend asks of whoever captures and replays: CUDA itself, or the simulator.

One pool, two recordings and a step of training::

    pool = engine.new_pool(device)
    forward = engine.record(run_forward, [x, weight], pool)      nothing is executed
    forward.replay()                                             reads x and weight where they were
    backward = engine.record(run_backward, [*saved, grad], pool)   may take memory that run_forward gave back
    backward.replay()
    forward.release(); backward.release()                        the pool holds nothing any more

Recordings that share a pool share its memory: what one of them gave back while it was recorded, a later one may
have been given. So they are replayed in the order in which they were recorded, and an output is to be read before
the next replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

__all__ = ["Engine", "Function", "Pool", "Recording"]

Function = Callable[[list[Any]], Any]
"""What is recorded: takes one list, which it may empty to free its inputs early (a boxed call)."""


class Pool(Protocol):
    """Memory at fixed addresses, for any number of recordings. Given back when the last of them is released."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the device, in use or not."""
        ...

    @property
    def allocated_bytes(self) -> int:
        """Bytes that tensors occupy now."""
        ...


class Recording(Protocol):
    """One captured function."""

    outputs: list[Any]
    """The leaves of what the function returned, in the order of ``torch.utils._pytree``.

    Tensors made by the function lie in the pool: their values are rubbish before the first replay, and each replay
    writes them anew. The list holds them; emptied, their memory may be given to recordings made later. Inputs that
    the function returned, and views of them, are here too, as the tensors they are.
    """

    def replay(self) -> None:
        """Run everything that was recorded, reading and writing the addresses of then.

        Raises:
            ReleasedRecordingError: the recording has been released.
        """
        ...

    def release(self) -> None:
        """Give up the recorded work and this recording's share of the pool. May be called twice."""
        ...


class Engine(Protocol):
    """Captures and replays."""

    name: str

    def available_for(self, device: torch.device) -> bool:
        """Tell whether tensors on this device can be captured."""
        ...

    def new_pool(self, device: torch.device) -> Pool:
        """Return a pool that holds no memory yet."""
        ...

    def warm_up(self, function: Function, inputs: list[Any]) -> Any:
        """Run a function for good, apart from other work of the device, and return what it returns.

        Libraries choose algorithms and take memory on a first call, which must not be recorded. The run is a real
        one: it writes and draws random numbers once.
        """
        ...

    def record(
        self,
        function: Function,
        inputs: list[Any],
        pool: Pool,
        generators: Sequence[torch.Generator] = (),
    ) -> Recording:
        """Capture one call. It has no effect on any memory outside or on random numbers.

        The engine keeps neither ``inputs`` nor its elements alive: who replays must, at their addresses.

        Args:
            function: Called once, with ``inputs``.
            inputs: Tensors and whatever else the function takes.
            pool: Where the function's tensors are to lie.
            generators: Random number generators other than the device's default one that the function draws from.

        Raises:
            CaptureRefusedError: the function did what can't be captured. All is as before the call.
        """
        ...

    def unowned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor at the same address, with the same sizes and strides, that does not hold the memory.

        What it shows once the memory has been given away is undefined. Handing these out, in place of
        `Recording.outputs`, lets a backward that shares the pool use the memory of activations it has consumed.
        """
        ...
