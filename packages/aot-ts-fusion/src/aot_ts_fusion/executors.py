"""Who compiles fusible regions: nvFuser through aot-partition where it can be used, or eager kernels."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from torch import fx

from aot_core.protocol import Decision
from aot_partition.executors import find_executor
from aot_partition.nvprims import claim
from aot_partition.regions import find_regions
from aot_ts_fusion.errors import UnusableFuserError
from aot_ts_fusion.regions import CompileRegion

__all__ = ["RegionExecutor", "executor_for", "warn_once"]

log = logging.getLogger(__name__)


class RegionExecutor:
    """Finds regions of a graph by aot-partition's rules, and has one of its executors compile them.

    Args:
        name: Name of the executor.

    Attributes:
        obstacle: Why it can't be used here; None if it can.
    """

    def __init__(self, name: str) -> None:
        self._executor = find_executor(name)
        found = self._executor.availability()
        self.obstacle = None if found.usable else f"{found.reason.rstrip('.')}. {found.remedy}".rstrip()

    def find_regions(self, gm: fx.GraphModule) -> Sequence[Collection[fx.Node]]:
        """Return the nodes of each region of a graph."""
        claims = claim(gm, refuse=self._executor.refuse)
        return [region.nodes for region in find_regions(gm, claims)]

    @property
    def compile_region(self) -> CompileRegion:
        """Compiles the graph of one region."""
        return self._executor.compile_region


def executor_for(name: str, *, strict: bool) -> RegionExecutor:
    """Return the executor of a name.

    Raises:
        UnusableFuserError: it can't be used here, and ``strict`` was asked for.
    """
    executor = RegionExecutor(name)
    if strict and executor.obstacle is not None:
        raise UnusableFuserError(
            f"Executor {name!r} can't be used: {executor.obstacle} Without strict the graph would run in plain "
            "TorchScript. 'aot doctor' tells what is missing."
        )
    return executor


_warned: set[str] = set()


def warn_once(decision: Decision) -> None:
    """Log that there is no fusion as a warning, the first time that its cause is met in this process."""
    if decision.detail not in _warned:
        _warned.add(decision.detail)
        log.warning("%s The graph runs in plain TorchScript.", decision)
