"""torch's activation budget: which values its own partitioner saves when told to save a fraction.

The budget counts saved bytes. It says nothing of the peak of a step, which may rise as it falls; for that
there is the planner.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from aot_partition import _compat
from aot_partition.errors import ContradictoryTagsError, InvalidBudgetError
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.tags import Tags
from aot_partition.mincut.torch_rules import FAR, BanOptions, TorchRules

__all__ = ["configured_budget", "saved_as_torch"]


def configured_budget(joint: JointGraph) -> float:
    """Return the budget that torch's settings, or the user's annotations of the graph, ask for.

    Raises:
        ContradictoryTagsError: the annotations differ, or cover a part of the forward only.
    """
    budget = float(getattr(_compat.functorch_config(), "activation_memory_budget", 1.0))
    for node in joint.nodes:
        if isinstance(node.meta.get("memory_budget"), float):
            budget = node.meta["memory_budget"]
            break
    if not any("custom" in node.meta for node in joint.nodes):
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
    if budget is None:
        budget = configured_budget(joint)
    if not 0 <= budget <= 1:
        raise InvalidBudgetError(f"An activation budget of torch lies between 0 and 1, got {budget!r}.")
    tags = Tags(joint)
    inputs = [*joint.primals, *joint.forward_seeds]
    if budget == 0:
        return inputs
    rules = TorchRules(joint, tags, recomputable_ops=recomputable_ops)
    options = BanOptions.from_torch()
    fastest, _ = rules.cut(options)
    smallest, largest = _gigabytes(joint, inputs), _gigabytes(joint, fastest)
    if budget == 1 or largest <= smallest:
        return fastest

    def fraction(saved: list[int]) -> float:
        return (_gigabytes(joint, saved) - smallest) / (largest - smallest)

    options = options.without_fusion_bans()
    saved, _ = rules.cut(options)
    if fraction(saved) < budget:
        return saved
    options = dataclasses.replace(options, not_in_allowlist=False)
    saved, banned = rules.cut(options)
    if fraction(saved) < budget:
        return saved
    return _choose(joint, tags, rules, options, banned, inputs, budget, largest - smallest)


def _choose(
    joint: JointGraph,
    tags: Tags,
    rules: TorchRules,
    options: BanOptions,
    banned: list[int],
    inputs: list[int],
    budget: float,
    span: float,
) -> list[int]:
    """Let torch's knapsack choose among the nodes whose ban could be lifted."""
    given = {_first_storage(joint, i) for i in inputs}
    free = [
        i
        for i in banned
        if rules.distance[i] < FAR
        and (_first_storage(joint, i) not in given or _compat.counts_as_non_builtin(joint.nodes[i]))
    ]
    kept = [i for i in free if tags.must_save[i]]
    free = sorted((i for i in free if not tags.must_save[i]), key=lambda i: joint.size(i), reverse=True)
    if not free:
        return inputs + kept
    nodes = [joint.nodes[i] for i in free]
    sizes = [joint.size(i) / 1e9 / span for i in free]
    lifted = _compat.knapsack(joint.module.graph, nodes, sizes, budget)
    saved, _ = rules.cut(options, not_banned={free[number] for number in lifted})
    return saved


def _first_storage(joint: JointGraph, i: int) -> int | None:
    return joint.storages[i][0] if isinstance(joint.value(i), torch.Tensor) and joint.storages[i] else None


def _gigabytes(joint: JointGraph, saved: list[int]) -> float:
    return sum(joint.size(i) for i in saved) / 1e9
