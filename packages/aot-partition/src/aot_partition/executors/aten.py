"""The executor ``aten``: a region runs as the ATen operators that it consists of.

It claims what the op set claims, on every device. So a model that is wrong with ``nvprims_nvfuser`` and right with
``nvprims_aten`` is broken by the fuser, and one that is wrong with both by claims, regions or partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

import aot_core
from aot_core.protocol import Availability
from aot_partition import _compat
from aot_partition.executors.protocol import CompiledRegion

__all__ = ["EXECUTOR", "AtenExecutor"]


class AtenExecutor:
    """Runs regions with eager kernels."""

    name = "aten"
    device_types: tuple[str, ...] | None = None

    def availability(self) -> Availability:
        """Tell that it can: wherever torch runs, it does."""
        return Availability(True, "eager kernels")

    def refuse(self, node: fx.Node) -> str | None:
        """Take every node."""
        return None

    def compile_region(self, subgraph: fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledRegion:
        """Compile a region to its own code, each value freed after its last use."""
        return aot_core.boxed_code(_compat.copy_graph_module(subgraph))

    def __repr__(self) -> str:
        return "<executor aten>"


EXECUTOR = AtenExecutor()
