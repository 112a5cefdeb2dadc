"""Pictures of a plan: memory over the nodes of the step, and what memory costs in time. Needs ``[viz]``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aot_partition.errors import MissingExtraError
from aot_partition.memory.liveness import StepMemory
from aot_partition.plan import PartitionPlan

if TYPE_CHECKING:
    from aot_partition.memory.comparison import TorchPoint

__all__ = ["draw", "draw_pareto"]

BEFORE, AFTER, TORCH = "#9aa5b1", "#1f6feb", "#d1495b"


def draw(plan: PartitionPlan, path: str | os.PathLike[str]) -> None:
    """Draw the memory of a step, node by node, without the plan and with it.

    Args:
        plan: What to draw.
        path: File to write; its ending says in which format, ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, axes = _new_figure()
    unit, name = _unit(plan.unplanned_peak)
    for memory, color, label in (
        (plan.unplanned, BEFORE, "without a plan"),
        (plan.memory, AFTER, "planned"),
    ):
        heights = [node.peak / unit for node in (*memory.forward, *memory.backward)]
        places = _places(memory)
        axes.fill_between(places, heights, step="mid", color=color, alpha=0.25, linewidth=0)
        axes.step(
            places,
            heights,
            where="mid",
            color=color,
            linewidth=1.2,
            label=f"{label}: {memory.peak / unit:.1f}",
        )
    axes.axhline(plan.budget / unit, color="black", linewidth=0.8, linestyle="--")
    axes.annotate(" budget", (2, plan.budget / unit), va="bottom", ha="right", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set_xticks([0.5, 1.5], ["forward", "backward"])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(0, 2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"allocated, {name}")
    axes.set_title(f"recomputation adds {100 * plan.overhead:.1f} % to the step", fontsize=10)
    axes.legend(frameon=False, title=f"peak, {name}")
    figure.savefig(path)


def draw_pareto(
    plans: Sequence[PartitionPlan],
    path: str | os.PathLike[str],
    *,
    torch_points: Iterable[TorchPoint] = (),
) -> None:
    """Draw what a smaller peak costs in recomputation.

    Args:
        plans: A front, as `aot_partition.pareto` returns it.
        path: File to write.
        torch_points: Torch's own budgets on the same step, drawn beside it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        ValueError: there is no plan.
    """
    if not plans:
        raise ValueError("draw_pareto expects at least one plan, got none")
    figure, axes = _new_figure()
    unit, name = _unit(plans[0].unplanned_peak)
    axes.plot(
        [plan.peak / unit for plan in plans],
        [100 * plan.overhead for plan in plans],
        color=AFTER,
        marker="o",
        markersize=4,
        label="planned",
    )
    points = list(torch_points)
    if points:
        axes.plot(
            [point.memory.peak / unit for point in points],
            [100 * point.recompute_seconds / plans[0].seconds for point in points],
            color=TORCH,
            marker="x",
            linestyle="none",
            label="torch's activation_memory_budget",
        )
        for point in points:
            place = point.memory.peak / unit, 100 * point.recompute_seconds / plans[0].seconds
            axes.annotate(f" {point.budget:g}", place, fontsize=7, color=TORCH)
    axes.set_xlabel(f"peak of the step, {name}")
    axes.set_ylabel("recomputation, % of the step")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.savefig(path)


def _new_figure() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "Drawing needs matplotlib, which is not installed. Run: pip install 'aot-partition[viz]'."
        ) from error
    # Without pyplot: no window system, and no state shared with the caller's figures.
    figure = Figure(figsize=(8, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _places(memory: StepMemory) -> list[float]:
    """Spread the forward over 0 to 1 and the backward over 1 to 2, however many nodes each has."""
    forward, backward = len(memory.forward), len(memory.backward)
    return [(k + 0.5) / forward for k in range(forward)] + [1 + (k + 0.5) / backward for k in range(backward)]


def _unit(size: int) -> tuple[float, str]:
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return float(2**power), name
    return 1.0, "bytes"
