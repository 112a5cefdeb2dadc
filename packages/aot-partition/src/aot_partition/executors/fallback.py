"""Compiles regions, and records each; what its executor can't compile or run is run by ATen.

A region that writes its inputs may have written some when it fails, and must not be run on those again. Executors may
put their work off until a region is first run with inputs of some sizes and strides, and mostly fail then: so the
first time, what will be written is copied before, and restored on failure. What has run once is no longer copied for;
if it fails nevertheless, nobody runs it again, and the failure is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core.compilation import Compilation
from aot_core.protocol import Decision
from aot_partition import _compat
from aot_partition.errors import RegionFailedError
from aot_partition.executors.aten import EXECUTOR as ATEN
from aot_partition.executors.aten import AtenExecutor
from aot_partition.executors.protocol import CompiledRegion, Executor
from aot_partition.executors.repro import write_repro
from aot_partition.executors.settings import NvprimsSettings

__all__ = ["RegionCompiler"]


class RegionCompiler:
    """Compiles the regions of one graph with one executor.

    Args:
        executor: What compiles.
        settings: The options in force.
        compilation: Whose report gets regions and failures; None where no backend of this family is compiling.
    """

    def __init__(
        self, executor: Executor, settings: NvprimsSettings, compilation: Compilation | None
    ) -> None:
        self._executor = executor
        self._settings = settings
        self._compilation = compilation
        self._stage = "forward" if compilation is None else compilation.stage

    def compile(self, name: str, subgraph: fx.GraphModule, inputs: Sequence[Any]) -> CompiledRegion:
        """Compile a region; on failure, now or when it is run, compile it with ATen.

        Args:
            name: Name of the region.
            subgraph: The region as a graph of its own.
            inputs: What its inputs were traced as.

        Raises:
            RegionFailedError: the executor failed, and ``strict`` is set.
        """
        if isinstance(self._executor, AtenExecutor):
            run = ATEN.compile_region(subgraph, inputs)
        else:
            try:
                run = self._executor.compile_region(subgraph, inputs)
            except Exception as error:
                return self._fall_back(name, subgraph, error, "compile")
            run = self._guarded(name, subgraph, run)
        self._record(name, subgraph)
        return run

    def _record(self, name: str, subgraph: fx.GraphModule) -> None:
        if self._compilation is not None:
            nodes = tuple(node.name for node in subgraph.graph.nodes if node.op == "call_function")
            detail = f"executor {self._executor.name!r} runs {len(nodes)} nodes in one call"
            self._compilation.decide(Decision(self._stage, name, "fuse", "region", detail, nodes=nodes))

    def _guarded(self, name: str, subgraph: fx.GraphModule, run: CompiledRegion) -> CompiledRegion:
        running = run
        written = _written_inputs(subgraph)
        has_run: set[Any] = set()

        def guarded(inputs: list[Any]) -> Sequence[Any]:
            nonlocal running
            if running is not run:
                return running(inputs)
            # A fused kernel reads its inputs until its end: holding them as long costs no memory.
            held = list(inputs)
            geometry = _geometry(held) if written else None
            saved = None if geometry in has_run else [held[i].clone() for i in written]
            try:
                made = run(inputs)
            except Exception as error:
                for i, value in zip(written, saved or (), strict=False):
                    held[i].copy_(value)
                if isinstance(error, torch.OutOfMemoryError) or saved is None:
                    raise
                running = self._fall_back(name, subgraph, error, "run")
                return running(held)
            if written:
                has_run.add(geometry)
            return made

        return guarded

    def _fall_back(self, name: str, subgraph: fx.GraphModule, error: Exception, doing: str) -> CompiledRegion:
        operators = sorted({str(node.target) for node in subgraph.graph.nodes if node.op == "call_function"})
        detail = (
            f"executor {self._executor.name!r} can't {doing} it: {type(error).__name__}: {error}; it has "
            f"{len(operators)} operators: {', '.join(operators)}"
        )
        if self._settings.repro is not None:
            path = write_repro(subgraph, name, executor=self._executor.name, folder=self._settings.repro)
            detail += f"; {path} reproduces it"
        if self._settings.strict:
            raise RegionFailedError(
                f"Region {name!r} failed: {detail}. Without strict it would be run by ATen. Leave one of these "
                "operators out with skip_ops."
            ) from error
        if self._compilation is not None:
            self._compilation.decide(
                Decision(self._stage, name, "fallback", f"region-failed-to-{doing}", detail)
            )
        return ATEN.compile_region(subgraph, [])


def _written_inputs(subgraph: fx.GraphModule) -> list[int]:
    """Return the places of the inputs that a region writes."""
    inputs = [node for node in subgraph.graph.nodes if node.op == "placeholder"]
    written = {
        target
        for node in subgraph.graph.nodes
        if _compat.is_mutable_schema(node.target)
        for target in _compat.written_arguments(node)
    }
    return [i for i, node in enumerate(inputs) if node in written]


def _geometry(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([(x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs])
