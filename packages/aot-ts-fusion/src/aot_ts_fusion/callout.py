"""``aot_ts_fusion::run_fusion``: a TorchScript graph calls what another compiler has made of a part of it.

::

    %inputs : Tensor[] = prim::ListConstruct(%x, %w)
    %outputs : Tensor[] = aot_ts_fusion::run_fusion(%number, %inputs)

A `Fusion` is found by its number for as long as it is alive, and what calls it keeps it alive: the graph that holds
the call, then the compiled function. When that is gone, so is the entry.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import fx

from aot_ts_fusion.errors import FusionResultError, UnknownFusionError

__all__ = ["FUSIONS_KEY", "RUN_FUSION", "Fusion", "fusions_called", "num_fusions"]

_library = torch.library.Library("aot_ts_fusion", "DEF")  # type: ignore[no-untyped-call]
_library.define("run_fusion(int id, Tensor[] inputs) -> Tensor[]")  # type: ignore[no-untyped-call]

_numbers = itertools.count()
_fusions: weakref.WeakValueDictionary[int, Fusion] = weakref.WeakValueDictionary()

FUSIONS_KEY = "aot_ts_fusion"
"""Where a graph module's ``meta`` keeps the fusions that its graph calls."""


class Fusion:
    """A compiled part of a graph, to be called from TorchScript.

    Args:
        run: Takes a list of tensors, which it may empty, and returns the results as a list.
        num_outputs: How many results there are.
        name: What to call it in an error.

    Attributes:
        number: What `run_fusion` finds it by.
    """

    def __init__(
        self, run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]], num_outputs: int, name: str
    ) -> None:
        self.number = next(_numbers)
        self.name = name
        self.num_outputs = num_outputs
        self._run = run
        _fusions[self.number] = self

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run it.

        Raises:
            FusionResultError: it gave another number of results than the graph expects.
        """
        outputs = self._run(inputs)
        if len(outputs) != self.num_outputs:
            raise FusionResultError(
                f"What was compiled for {self.name} returned {len(outputs)} values, expected {self.num_outputs} "
                "tensors in a list, one for each result of that part of the graph. Mend the fuser."
            )
        return outputs if type(outputs) is list else list(outputs)


def _run_fusion(number: int, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    fusion = _fusions.get(number)
    if fusion is None:
        raise UnknownFusionError(
            f"There is no fusion {number}: the compiled function that it belonged to is gone, or was made in another "
            "process. Compile the model anew; a TorchScript graph that calls fusions can't be saved."
        )
    return fusion(inputs)


_library.impl("run_fusion", _run_fusion, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]

RUN_FUSION = torch.ops.aot_ts_fusion.run_fusion.default
"""The operator, as a graph calls it."""


def fusions_called(graph: fx.Graph) -> list[Fusion]:
    """Return the fusions that a graph calls.

    Raises:
        UnknownFusionError: one of them is gone.
    """
    found = []
    for node in graph.find_nodes(op="call_function", target=RUN_FUSION):
        number = node.args[0]
        if number not in _fusions:
            raise UnknownFusionError(
                f"{node.name} calls fusion {number}, which is gone. Keep the graph module that calls it alive until "
                "it is compiled."
            )
        found.append(_fusions[number])
    return found


def num_fusions() -> int:
    """Return how many fusions are alive in this process."""
    return len(_fusions)
