"""Each call notes the graph's operations anew, and XLA runs them as one computation.

XLA keeps what it compiled by the operations that were noted, so equal calls compile once; but Python runs the graph
each time. Nothing can be baked in, which makes this the backend for whatever tracing once can't hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aot_xla.device import Device
from aot_xla.recompilation import Recompilations

__all__ = ["Trivial"]


class Trivial:
    """Runs a function of tensors on a device by noting its operations at every call.

    Args:
        function: From a list of tensors and numbers to a list of them; changes none of its inputs.
        device: Where the tensors are.
        recompilations: Told of each computation that is compiled.
    """

    def __init__(
        self, function: Callable[[list[Any]], list[Any]], device: Device, recompilations: Recompilations
    ) -> None:
        self._function = function
        self._device = device
        self._recompilations = recompilations

    def __call__(self, values: list[Any]) -> list[Any]:
        """Return the results for the inputs of one call."""
        # What others have noted is a computation of its own: together with ours it would be another in each call
        # that they note something else.
        self._device.run_pending()
        before = self._device.num_compilations()
        with self._device.lazily():
            results = self._function(values)
            self._device.run_pending()
        for _ in range(self._device.num_compilations() - before):
            self._recompilations.note([x.shape for x in values if isinstance(x, torch.Tensor)])
        return results
