"""The order in which the autograd engine would run a backward, recomputation included."""

from __future__ import annotations

import torch

from aot_partition.joint_graph import JointGraph

__all__ = ["engine_order"]


def engine_order(joint: JointGraph, computed: bytearray) -> list[int]:
    """Order what a backward computes so that a recomputed value comes right before its first use.

    In the order of the joint graph all of the forward that is computed again would come first, and all of it
    would be in memory at once::

        tangent, a = f(x), b = g(a), db = dg(tangent, b), da = df(db, a)    # a, b, then the backward

    Args:
        joint: The joint graph.
        computed: 1 for each node that the backward computes.

    Returns:
        The positions of these nodes. A node that nothing of the backward needs is left out, unless it comes
        after the backward's first node.
    """
    first = min((user for i in joint.tangents for user in joint.users[i] if computed[user]), default=None)
    wanted = [i for i, is_computed in enumerate(computed) if is_computed]
    if first is None:
        return wanted
    copy = torch.ops.aten.copy_.default
    early = [i for i in wanted if i < first and joint.nodes[i].target is copy]
    # What is returned and on no path from a tangent comes at the end, not at the start.
    late = [i for i in wanted if i < first and joint.required_backward[i]]
    done = bytearray(len(joint))
    order: list[int] = []
    inputs = joint.inputs

    def bring(roots: list[int]) -> None:
        brought = [i for i in roots if not done[i]]
        for i in brought:
            done[i] = 1
        # Grows while it is read: what is missing of what is missing.
        for i in brought:
            for j in inputs[i]:
                if computed[j] and not done[j]:
                    done[j] = 1
                    brought.append(j)
        brought.sort()
        order.extend(brought)

    for i in early:
        bring([i])
    for i in wanted:
        if i < first or done[i]:
            continue
        if any(computed[j] and not done[j] for j in inputs[i]):
            bring([i])
        else:
            done[i] = 1
            order.append(i)
    bring(late)
    return order
