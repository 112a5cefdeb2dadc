"""The graph is traced once for each set of shapes; from then on the compiled computation is called.

Traced are stand-ins: copies of nothing, made for the trace and dropped after it. XLA tells the inputs of a
computation apart by their memory. Were the caller's tensors traced, two that share memory (a buffer and the saved
value that was written to it) would look like one, and the other would become a constant with its present value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aot_core import Compilation, Decision
from aot_xla.device import CannotTrace, Device, Executable
from aot_xla.recompilation import Recompilations
from aot_xla.trivial import Trivial

__all__ = ["TraceOnce"]


class TraceOnce:
    """Runs a function of tensors on a device, having traced it for their shapes.

    What can't be traced is run by `Trivial`, which the report says.

    Args:
        function: From a list of tensors and numbers to a list of them; changes none of its inputs.
        device: Where the tensors are. Its lock is held during each call.
        recompilations: Told of each computation that is compiled.
        compilation: Whose report tells what can't be traced.
    """

    def __init__(
        self,
        function: Callable[[list[Any]], list[Any]],
        device: Device,
        recompilations: Recompilations,
        compilation: Compilation,
    ) -> None:
        self._function = function
        self._device = device
        self._recompilations = recompilations
        self._compilation = compilation
        self._stage = compilation.stage
        self._runs: dict[Any, Callable[[list[Any]], list[Any]]] = {}

    def __call__(self, values: list[Any]) -> list[Any]:
        """Return the results for the inputs of one call."""
        key = tuple((x.shape, x.dtype) if isinstance(x, torch.Tensor) else (type(x), x) for x in values)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._prepare(values)
        return run(values)

    def _prepare(self, values: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        try:
            run = self._trace(values)
        except CannotTrace as reason:
            self._compilation.decide(run_at_every_call(str(reason), self._stage, self._compilation.graph))
            return Trivial(self._function, self._device, self._recompilations)
        self._recompilations.note([x.shape for x in values if isinstance(x, torch.Tensor)])
        return run

    def _trace(self, values: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        # Numbers are part of the key, and so of the trace.
        numbers = [None if isinstance(x, torch.Tensor) else x for x in values]
        taken = [i for i, x in enumerate(values) if isinstance(x, torch.Tensor)]
        blanks = [torch.zeros(values[i].shape, dtype=values[i].dtype, device="cpu") for i in taken]
        results: list[Any] = []

        def trace(stand_ins: list[torch.Tensor]) -> list[torch.Tensor]:
            inputs = list(numbers)
            for i, stand_in in zip(taken, stand_ins, strict=True):
                inputs[i] = stand_in
            traced = self._function(inputs)
            results[:] = [None if isinstance(x, torch.Tensor) else x for x in traced]
            return [x for x in traced if isinstance(x, torch.Tensor)]

        executable: Executable = self._device.compile(trace, self._device.upload(blanks))
        given = [x is None for x in results]

        def run(values: list[Any]) -> list[Any]:
            computed = iter(executable([values[i] for i in taken]))
            return [next(computed) if is_tensor else x for is_tensor, x in zip(given, results, strict=True)]

        return run


def run_at_every_call(operations: str, stage: str, graph: str) -> Decision:
    """Say that a graph is not traced once."""
    return Decision(
        stage,
        f"graph {graph}",
        "run at every call",
        "untraceable",
        f"a trace of one call would not hold for another: {operations}",
    )
