"""What torch's own activation budget gives on the same step, measured with the same ruler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from torch import fx

from aot_partition.extract import Assignment, extract
from aot_partition.joint_graph import JointGraph
from aot_partition.memory.liveness import StepMemory, simulate_step
from aot_partition.mincut.activation_budget import ActivationBudgets

__all__ = ["TORCH_BUDGETS", "TorchPoint", "recomputed_seconds", "torch_points"]

TORCH_BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclasses.dataclass(frozen=True)
class TorchPoint:
    """One value of torch's ``activation_memory_budget``.

    Args:
        budget: That value, from 0 to 1.
        memory: The step, node by node.
        recompute_seconds: What recomputation adds.
    """

    budget: float
    memory: StepMemory
    recompute_seconds: float


def torch_points(
    joint: JointGraph,
    *,
    seconds: Callable[[fx.Node], float],
    scratch: Callable[[fx.Node], int],
    budgets: Sequence[float] = TORCH_BUDGETS,
) -> Iterator[TorchPoint]:
    """Cut a joint graph as torch does under its activation budgets, and simulate the steps.

    Args:
        joint: The joint graph.
        seconds: How long a node takes.
        scratch: What its kernel allocates inside, in bytes.
        budgets: Values of torch's ``activation_memory_budget``.
    """
    as_torch = ActivationBudgets(joint)
    for budget in budgets:
        forward, backward = extract(joint, Assignment(as_torch.saved(budget)))
        memory = simulate_step(forward, backward, joint.num_fwd_outputs, scratch=scratch)
        yield TorchPoint(budget, memory, recomputed_seconds(joint, backward, seconds))


def recomputed_seconds(
    joint: JointGraph, backward: fx.GraphModule, seconds: Callable[[fx.Node], float]
) -> float:
    """Return how long those nodes of a backward take that compute what the forward computed; views are free."""
    again = {
        node.name: node
        for i, node in enumerate(joint.nodes)
        if joint.in_forward[i] and node.op == "call_function" and not joint.is_alias[i]
    }
    return sum(
        seconds(again[node.name])
        for node in backward.graph.nodes
        if node.op == "call_function" and node.name in again
    )
