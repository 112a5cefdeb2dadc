"""Make the ranks of a distributed run plan alike.

Costs are measured, so each rank finds others; and from other costs come other plans, with collectives in other
places. So the ranks of a step with collectives first agree on the costs: those of rank 0. The search is
deterministic, so that the same graph and costs give the same plan.
"""

from __future__ import annotations

import hashlib

import torch.distributed as dist

from aot_partition.errors import RanksDisagreeError
from aot_partition.joint_graph import JointGraph

__all__ = ["agree"]


def agree(joint: JointGraph, costs: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the costs of a graph's nodes that all ranks use.

    Only a graph with collectives is talked about: there all ranks compile together, as the collectives
    themselves will run together. Any other graph may be compiled on one rank alone (the last batch of one rank
    is smaller, say), and waiting for the others would never end.

    Args:
        joint: The joint graph.
        costs: Seconds and scratch bytes of each node, as measured here.

    Raises:
        RanksDisagreeError: another rank compiles another graph.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return costs
    if not any(joint.is_collective):
        return costs
    mine = (_fingerprint(joint), costs)
    everyone: list[tuple[str, list[tuple[float, int]]]] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    others = [rank for rank, (fingerprint, _) in enumerate(everyone) if fingerprint != mine[0]]
    if others:
        raise RanksDisagreeError(
            f"Rank {dist.get_rank()} plans another graph than ranks {others}: the graphs of a step with "
            "collectives must be the same on all ranks. Check that all ranks run the same model on inputs of "
            "the same shapes."
        )
    return everyone[0][1]


def _fingerprint(joint: JointGraph) -> str:
    digest = hashlib.sha256()
    for i, node in enumerate(joint.nodes):
        digest.update(f"{node.op} {node.target} {joint.inputs[i]} {joint.size(i)}\n".encode())
    return digest.hexdigest()
