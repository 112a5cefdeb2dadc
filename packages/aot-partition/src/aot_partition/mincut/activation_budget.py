"""torch's activation budget: which values its own partitioner saves when told to save a fraction.

The budget counts saved bytes. It says nothing of the peak of a step, which may rise as it falls; for that
there is the planner.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from aot_partition import _compat
from aot_partition.errors import ContradictoryTagsError, InvalidBudgetError
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.tags import Tags
from aot_partition.mincut.torch_rules import FAR, BanOptions, TorchRules

__all__ = ["ActivationBudgets", "configured_budget", "saved_as_torch"]


def configured_budget(joint: JointGraph) -> float:
    """Return the budget that torch's settings, or the user's annotations of the graph, ask for.

    Raises:
        ContradictoryTagsError: the annotations differ, or cover a part of the forward only.
    """
    budget = float(getattr(_compat.functorch_config(), "activation_memory_budget", 1.0))
    annotated = [meta for meta in joint.metadata if "custom" in meta or "memory_budget" in meta]
    for meta in annotated:
        if isinstance(meta.get("memory_budget"), float):
            budget = meta["memory_budget"]
            break
    if not any("custom" in meta for meta in annotated):
        return budget
    regions: dict[float, str] = {}
    outside = []
    for i, node in enumerate(joint.nodes):
        found = _compat.region_budget(node)
        if found is not None:
            regions.setdefault(found, node.name)
        elif node.op == "call_function" and joint.in_forward[i]:
            outside.append(node.name)
    if len(regions) > 1 or (regions and outside):
        raise ContradictoryTagsError(
            f"Activation budgets of regions hold for a whole graph; this one has {sorted(regions)}"
            + (f", and none at {outside[0]!r}" if outside else "")
            + ". Put one region around all of the forward, or a graph break between regions."
        )
    return next(iter(regions), budget)


def saved_as_torch(
    joint: JointGraph, *, recomputable_ops: Any = None, budget: float | None = None
) -> list[int]:
    """Return the positions that torch's partitioner would save, in graph order.

    Args:
        joint: The joint graph.
        recomputable_ops: Replaces torch's list of operators that may be recomputed.
        budget: Fraction of the activations to save, 0 to 1; None reads torch's settings.

    Raises:
        InvalidBudgetError: a budget outside of 0 to 1.
        UnboundedCutError: the tags contradict the graph.
    """
    budget = configured_budget(joint) if budget is None else budget
    return ActivationBudgets(joint, recomputable_ops=recomputable_ops).saved(budget)


class ActivationBudgets:
    """What torch's partitioner saves of one graph, budget by budget. What budgets have in common is found once."""

    def __init__(self, joint: JointGraph, *, recomputable_ops: Any = None) -> None:
        """Read the tags of a graph and torch's settings.

        Args:
            joint: The joint graph.
            recomputable_ops: Replaces torch's list of operators that may be recomputed.

        Raises:
            ContradictoryTagsError: the tags contradict each other.
        """
        self._joint = joint
        self._tags = Tags(joint)
        self._inputs = [*joint.primals, *joint.forward_seeds]
        self._recomputable_ops = recomputable_ops
        self._options = BanOptions.from_torch()

    def saved(self, budget: float) -> list[int]:
        """Return the positions that are saved under a budget.

        Args:
            budget: Fraction of the activations to save, 0 to 1.

        Raises:
            InvalidBudgetError: a budget outside of 0 to 1.
            UnboundedCutError: the tags contradict the graph.
        """
        if not 0 <= budget <= 1:
            raise InvalidBudgetError(f"An activation budget of torch lies between 0 and 1, got {budget!r}.")
        if budget == 0:
            return self._inputs
        if budget == 1 or self._span <= 0:
            return self._fastest
        saved, _ = self._without_fusion_bans
        if self._fraction(saved) < budget:
            return saved
        saved, _ = self._without_allowlist
        if self._fraction(saved) < budget:
            return saved
        return self._choose(budget)

    @functools.cached_property
    def _rules(self) -> TorchRules:
        return TorchRules(self._joint, self._tags, recomputable_ops=self._recomputable_ops)

    @functools.cached_property
    def _fastest(self) -> list[int]:
        saved, _ = self._rules.cut(self._options)
        return saved

    @functools.cached_property
    def _without_fusion_bans(self) -> tuple[list[int], list[int]]:
        return self._rules.cut(self._options.without_fusion_bans())

    @functools.cached_property
    def _without_allowlist(self) -> tuple[list[int], list[int]]:
        return self._rules.cut(self._scarce)

    @property
    def _scarce(self) -> BanOptions:
        return dataclasses.replace(self._options.without_fusion_bans(), not_in_allowlist=False)

    @functools.cached_property
    def _span(self) -> float:
        return self._gigabytes(self._fastest) - self._gigabytes(self._inputs)

    def _choose(self, budget: float) -> list[int]:
        """Let torch's knapsack choose among the nodes whose ban could be lifted."""
        joint, tags, distance = self._joint, self._tags, self._rules.distance
        given = {_first_storage(joint, i) for i in self._inputs}
        _, banned = self._without_allowlist
        free = [
            i
            for i in banned
            if distance[i] < FAR
            and (_first_storage(joint, i) not in given or _compat.counts_as_non_builtin(joint.nodes[i]))
        ]
        kept = [i for i in free if tags.must_save[i]]
        free = sorted((i for i in free if not tags.must_save[i]), key=lambda i: joint.size(i), reverse=True)
        if not free:
            return self._inputs + kept
        nodes = [joint.nodes[i] for i in free]
        sizes = [joint.size(i) / 1e9 / self._span for i in free]
        lifted = _compat.knapsack(joint.module.graph, nodes, sizes, budget)
        saved, _ = self._rules.cut(self._scarce, not_banned={free[number] for number in lifted})
        return saved

    def _fraction(self, saved: list[int]) -> float:
        return (self._gigabytes(saved) - self._gigabytes(self._inputs)) / self._span

    def _gigabytes(self, saved: list[int]) -> float:
        return sum(self._joint.size(i) for i in saved) / 1e9


def _first_storage(joint: JointGraph, i: int) -> int | None:
    return joint.storages[i][0] if isinstance(joint.value(i), torch.Tensor) and joint.storages[i] else None
