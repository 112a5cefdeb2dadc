"""CUDA itself as an engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.engine import Function
from aot_cudagraphs.errors import CaptureRefusedError, ReleasedRecordingError
from aot_cudagraphs.refusals import Refusal

__all__ = ["CudaEngine", "CudaPool", "CudaRecording"]

# One capture at a time: all are made on one side stream of their device.
_capture = threading.Lock()


class CudaPool:
    """A private pool of torch's allocator.

    Args:
        device: Whose memory it holds.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.handle: Any = torch.cuda.graph_pool_handle()
        self._last: torch.cuda.Stream | None = None

    def join_stream(self) -> None:
        """Have the current stream wait for the stream that last worked in this pool."""
        current = torch.cuda.current_stream(self.device)
        last = self._last
        if last is None:
            self._last = current
        elif last.cuda_stream != current.cuda_stream:
            current.wait_stream(last)
            self._last = current

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the device, in use or not."""
        return sum(segment["total_size"] for segment in self._segments())

    @property
    def allocated_bytes(self) -> int:
        """Bytes that tensors occupy now."""
        return sum(segment["allocated_size"] for segment in self._segments())

    def _segments(self) -> list[dict[str, Any]]:
        return [
            segment
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            if segment["segment_pool_id"] == tuple(self.handle) and segment["device"] == self.device.index
        ]


class CudaRecording:
    """A captured function, as an `aot_cudagraphs.Recording`.

    Args:
        graph: What was captured.
        outputs: The leaves of what the function returned.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: list[Any]) -> None:
        self.outputs = outputs
        self._graph: torch.cuda.CUDAGraph | None = graph

    def replay(self) -> None:
        """Run what was recorded on the current stream.

        Raises:
            ReleasedRecordingError: the recording has been released.
        """
        if self._graph is None:
            raise ReleasedRecordingError(
                "A recording was replayed after its release. Expected replay() before release(). Record again."
            )
        self._graph.replay()

    def release(self) -> None:
        """Give up the captured graph and its share of the pool. May be called twice."""
        if self._graph is not None:
            graph, self._graph = self._graph, None
            self.outputs = []
            graph.reset()


class CudaEngine:
    """Captures and replays on CUDA devices, as an `aot_cudagraphs.Engine`."""

    name = "cuda"

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def available_for(self, device: torch.device) -> bool:
        """Tell whether tensors on this device can be captured: those on a CUDA device."""
        return device.type == "cuda" and torch.cuda.is_available()

    def new_pool(self, device: torch.device) -> CudaPool:
        """Return a pool that holds no memory yet."""
        return CudaPool(device)

    def warm_up(self, function: Function, inputs: list[Any]) -> Any:
        """Run a function for good, on a stream of its own, and return what it returns.

        The current stream waits for it, and memory that it returns is known to be used there.
        """
        device = _device_of(inputs)
        if device is None:
            return function(inputs)
        current, side = torch.cuda.current_stream(device), self._side_stream(device)
        side.wait_stream(current)
        for tensor in _tensors_on(device, inputs):
            tensor.record_stream(side)
        with torch.cuda.stream(side):
            outputs = function(inputs)
        current.wait_stream(side)
        for tensor in _tensors_on(device, outputs):
            tensor.record_stream(current)
        return outputs

    def record(
        self,
        function: Function,
        inputs: list[Any],
        pool: CudaPool,
        generators: Sequence[torch.Generator] = (),
    ) -> CudaRecording:
        """Capture one call. It has no effect on any memory outside and on random numbers.

        Args:
            function: Called once, with ``inputs``, which it may empty.
            inputs: Tensors and whatever else the function takes.
            pool: Where the function's tensors are to lie.
            generators: Generators other than the device's default one that the function draws from.

        Raises:
            CaptureRefusedError: the function did what CUDA does not capture.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            if generator.device.type == "cuda":
                graph.register_generator_state(generator)
        side = self._side_stream(pool.device)
        outputs: list[Any] = []
        failure: Exception | None = None
        with _capture, torch.cuda.device(pool.device):
            side.wait_stream(torch.cuda.current_stream())
            try:
                # Other threads may allocate and wait for the device meanwhile.
                with torch.cuda.graph(
                    graph, pool=pool.handle, stream=side, capture_error_mode="thread_local"
                ):
                    try:
                        outputs = _compat.pytree.tree_leaves(function(inputs))
                    except Exception as error:
                        # The capture is ended before anything else is done. Ending it may fail in turn, and says less.
                        failure = error
            except Exception as error:
                failure = failure or error
            torch.cuda.current_stream().wait_stream(side)
        if failure is not None:
            # What it took from the pool goes back.
            outputs.clear()
            graph.reset()
            raise _as_refusal(failure)
        return CudaRecording(graph, outputs)

    def unowned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor at the same address that does not hold the memory."""
        return _compat.tensor_without_ownership(tensor)

    def _side_stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]


def _device_of(values: Any) -> torch.device | None:
    tensors = (leaf for leaf in _compat.pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return next((tensor.device for tensor in tensors if tensor.device.type == "cuda"), None)


def _tensors_on(device: torch.device, values: Any) -> list[torch.Tensor]:
    leaves = _compat.pytree.tree_leaves(values)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device == device]


def _as_refusal(failure: Exception) -> Exception:
    """Return CUDA's error for what can't be captured as this package's; anything else as it is."""
    text = str(failure)
    if isinstance(failure, CaptureRefusedError) or "captur" not in text.lower():
        return failure
    refusal = Refusal(
        "The function",
        "refused-by-cuda",
        f"CUDA says {text.splitlines()[0]!r}",
        "Leave what waits for the device outside.",
    )
    refused = CaptureRefusedError(refusal)
    refused.__cause__ = failure
    return refused
