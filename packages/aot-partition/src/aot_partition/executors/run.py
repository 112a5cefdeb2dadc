"""From a graph to a callable in which claimed regions are run by an executor.

::

    graph ─ claim ─> claims ─ find regions ─> regions ─ compile ─> calls ─ fuse ─> graph ─> boxed callable
                       │                        │          │
                       └─────── why not ────────┴── failed: by ATen ──> decisions
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import fx

import aot_core
from aot_core.compilation import Compilation
from aot_core.protocol import BoxedCallable, Decision
from aot_partition import _compat
from aot_partition.errors import UnusableExecutorError
from aot_partition.executors.fallback import RegionCompiler
from aot_partition.executors.lookup import find_executor
from aot_partition.executors.protocol import Executor
from aot_partition.executors.settings import NvprimsSettings
from aot_partition.nvprims.claims import Claims, claim
from aot_partition.nvprims.decompositions import nvprims_decompositions
from aot_partition.nvprims.marks import mark_, marked_claims
from aot_partition.nvprims.table import recomputable_ops
from aot_partition.partition import min_cut_partition
from aot_partition.regions.find import find_regions
from aot_partition.regions.fuse import fuse_regions

__all__ = ["nvprims_fw_bw_partition_fn", "prims_executor"]

log = logging.getLogger(__name__)


def prims_executor(
    gm: fx.GraphModule, inputs: Sequence[Any], *, executor: str | Executor = "nvfuser"
) -> BoxedCallable:
    """Compile a graph of ATen operators: its regions with an executor, what is left over with ATen.

    A graph that `nvprims_fw_bw_partition_fn` cut brings its claims; others, those of inference among them, are
    claimed here. A compiler for `aot_core.aot_autograd`; bind ``executor`` with ``functools.partial``.

    Args:
        gm: Forward, backward or inference graph, its nodes with ``meta["val"]``. Not changed.
        inputs: Not looked at: the placeholders' ``meta["val"]`` say the same.
        executor: Name of an executor, or one itself; see `aot_partition.executors.find_executor`.

    Returns:
        What runs the graph.

    Raises:
        UnknownExecutorError: there is none of that name.
        UnusableExecutorError: it can't run here, and ``strict`` is set.
        RegionFailedError: it failed, and ``strict`` is set.
    """
    chosen = find_executor(executor)
    compilation, settings = under_way()
    if not is_usable(chosen, settings, compilation):
        return _run_by_aten(gm)
    claims = marked_claims(
        gm,
        by=conditions(chosen, settings),
        judge=lambda graph: claim_for(graph, chosen, settings, compilation),
    )
    decisions: list[Decision] = []
    regions = find_regions(gm, claims, horizontal=settings.horizontal, decisions=decisions)
    compiler = RegionCompiler(chosen, settings, compilation)
    calls = {}
    for region in regions:
        subgraph = region.graph_module(gm)
        examples = [node.meta.get("val") for node in region.inputs]
        calls[region] = compiler.compile(region.name, subgraph, examples)
    _tell(compilation, [*decisions, _summary(claims, regions, chosen)])
    return _run_by_aten(fuse_regions(gm, calls) if regions else gm)


def nvprims_fw_bw_partition_fn(
    joint: fx.GraphModule,
    joint_inputs: Any = None,
    /,
    *,
    num_fwd_outputs: int,
    executor: str | Executor = "nvfuser",
    **kwargs: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Claim the nodes of a joint graph, and cut it so that nothing waits that a fused region can compute again.

    A ``partition_fn``. What it claimed it writes on the nodes of both graphs, where `prims_executor` finds it.

    Args:
        joint: Joint graph, traced with the decompositions of
            `aot_partition.nvprims.nvprims_decompositions` if more than what is claimed as it is shall be.
        joint_inputs: Not looked at.
        num_fwd_outputs: How many leading outputs belong to the forward.
        executor: Whose claims; see `prims_executor`.
        **kwargs: Passed to `aot_partition.min_cut_partition`.

    Returns:
        The forward and the backward graph.

    Raises:
        UnknownExecutorError, UnusableExecutorError: see `prims_executor`.
        Exception: what `aot_partition.min_cut_partition` raises.
    """
    chosen = find_executor(executor)
    compilation, settings = under_way()
    if not is_usable(chosen, settings, compilation):
        return min_cut_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
    claims = claim_for(joint, chosen, settings, compilation)
    kwargs.setdefault("recomputable_ops", recomputable_ops())
    kwargs.setdefault("cost_model", "torch")
    halves = min_cut_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
    for half in halves:
        mark_(half.graph, claims, by=conditions(chosen, settings))
    return halves


# --- what both need --------------------------------------------------------------------------------------------


def under_way() -> tuple[Compilation | None, NvprimsSettings]:
    """Return the compile under way and its options, or neither: executors work in foreign backends as well."""
    try:
        compilation = aot_core.current_compilation()
    except RuntimeError:
        return None, NvprimsSettings()
    settings = compilation.settings
    if isinstance(settings, NvprimsSettings):
        return compilation, settings
    return compilation, NvprimsSettings(strict=settings.strict)


def claim_for(
    gm: fx.GraphModule, executor: Executor, settings: NvprimsSettings, compilation: Compilation | None
) -> Claims:
    """Claim the nodes of a graph for an executor, and record what was refused."""
    claims = claim(gm, skip_ops=settings.skip_ops, allow=settings.allow, refuse=executor.refuse)
    _tell(compilation, claims.decisions(stage="partition" if compilation is None else compilation.stage))
    return claims


def conditions(executor: Executor, settings: NvprimsSettings) -> str:
    """Return a text that is the same for claims that would come out the same."""
    return f"{executor.name} skip_ops={sorted(map(str, settings.skip_ops))} allow={settings.allow}"


def decompositions_for(executor: Executor) -> dict[Any, Callable[..., Any]]:
    """Return what AOTAutograd shall take apart for an executor under the options in force: nothing if it can't run."""
    compilation, settings = under_way()
    if not is_usable(executor, settings, compilation, tell=False):
        return {}
    return nvprims_decompositions(skip_ops=settings.skip_ops, device_types=executor.device_types)


def is_usable(
    executor: Executor, settings: NvprimsSettings, compilation: Compilation | None, *, tell: bool = True
) -> bool:
    """Tell whether an executor can run here; if not, say so: to the log once, and to each report.

    Raises:
        UnusableExecutorError: it can't, and ``strict`` is set.
    """
    # mypy does not take a protocol for hashable.
    obstacle: Any = _obstacle
    reason, remedy = obstacle(executor)
    if not reason:
        return True
    if settings.strict:
        raise UnusableExecutorError(f"Executor {executor.name!r} can't run here: {reason}. {remedy}")
    if tell:
        _warn_once(executor.name, reason, remedy)
        _tell(
            compilation,
            [Decision("partition", executor.name, "fallback", "executor-unusable", f"{reason}. {remedy}")],
        )
    return False


@functools.cache
def _obstacle(executor: Any) -> tuple[str, str]:
    found = executor.availability()
    return ("", "") if found.usable else (found.reason or "it does not say why", found.remedy)


@functools.cache
def _warn_once(name: str, reason: str, remedy: str) -> None:
    log.warning("Executor %r can't run here, so ATen runs everything: %s. %s", name, reason, remedy)


def _run_by_aten(gm: fx.GraphModule) -> BoxedCallable:
    # On a copy: boxed code has another signature, and the graph belongs to the caller.
    return aot_core.boxed_code(_compat.copy_graph_module(gm))


def _summary(claims: Claims, regions: Sequence[Any], executor: Executor) -> Decision:
    inside = sum(len(region) for region in regions)
    calls = [node for node in (*claims.claimed, *claims.refused) if node.target is not operator.getitem]
    return Decision(
        "partition",
        "graph",
        "split",
        "regions",
        f"executor {executor.name!r} runs {inside} nodes in {len(regions)} regions; {len(calls)} calls in all, "
        f"{sum(node in claims for node in calls)} of them claimed",
    )


def _tell(compilation: Compilation | None, decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        if compilation is None:
            log.debug("%s", decision)
        else:
            compilation.decide(decision)
