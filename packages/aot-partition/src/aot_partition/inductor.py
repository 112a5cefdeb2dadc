"""The partitioner as an object of the class that Inductor wants."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from torch import fx

from aot_partition import _compat
from aot_partition.__about__ import __version__
from aot_partition.budget import Budget
from aot_partition.partition import CostModel, min_cut_partition

__all__ = ["MinCutPartitioner"]


@dataclasses.dataclass(frozen=True, eq=False)
class MinCutPartitioner(_compat.CustomPartitionerFn):
    """A partitioner for ``torch._inductor.config.custom_partitioner_fn``, which refuses plain functions.

    ::

        torch.compile(model, options={"custom_partitioner_fn": MinCutPartitioner()})

    Args:
        recomputable_ops: See `min_cut_partition`.
        budget: See there.
        cost_model: See there. By default as torch does, since Inductor fuses.
    """

    recomputable_ops: Collection[Any] | None = None
    budget: Budget | None = None
    cost_model: CostModel = "torch"

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Partition as `min_cut_partition` does with the options of this object."""
        return min_cut_partition(
            gm,
            joint_inputs,
            recomputable_ops=self.recomputable_ops,
            budget=self.budget,
            cost_model=self.cost_model,
            **kwargs,
        )

    def uuid(self) -> str | None:
        """Return what tells this partitioner from others, for the keys of Inductor's caches.

        It covers this package's version and every option. A function as cost model has no identity that
        outlives the process: then it is None, and Inductor caches nothing.
        """
        if callable(self.cost_model):
            return None
        ops = None if self.recomputable_ops is None else sorted(map(str, self.recomputable_ops))
        return f"aot-partition {__version__} {self.cost_model} budget={self.budget!r} ops={ops}"
