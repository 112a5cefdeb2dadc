"""Orders in which a backward can run. Which is best depends on the graph, so that several are planned.

``autograd``
    The order of the trace: gradients of parameters as soon as they can be computed.
``gradients freed first``
    Whatever ends the life of a gradient as large as what it makes, as soon as it can run: mostly the gradients of
    parameters wait until nothing else needs their arguments.
``saved values freed first``
    The same, and a saved value counts as much as a gradient: what reads one for the last time runs early.
"""

from __future__ import annotations

import heapq

from aot_partition.joint_graph import JointGraph
from aot_partition.memory.reading import backward_order

__all__ = ["backward_orders"]


def backward_orders(joint: JointGraph) -> list[list[int]]:
    """Return the orders worth planning, autograd's own first; positions of the backward's nodes."""
    first = backward_order(joint)
    orders = [first]
    for candidate in (_frees_most_first(joint, first), _frees_most_first(joint, first, saved_too=True)):
        if candidate not in orders:
            orders.append(candidate)
    return orders


def _frees_most_first(joint: JointGraph, order: list[int], *, saved_too: bool = False) -> list[int]:
    """Of what can run next, run what frees more than it makes as soon as it can; else keep the order.

    Effects keep their order among themselves.

    Args:
        joint: The joint graph.
        order: The order to keep otherwise.
        saved_too: Whether what the forward made counts among what is freed.
    """
    place = {i: number for number, i in enumerate(order)}
    read = {i: {s for j in joint.inputs[i] for s in joint.storages[j]} for i in order}
    readers: dict[int, int] = {}
    for i in order:
        for s in read[i]:
            readers[s] = readers.get(s, 0) + 1
    freeable_at_all = {s for i in order for s in joint.storages[i]}
    if saved_too:
        freeable_at_all |= {
            s
            for i, node in enumerate(joint.nodes)
            if node.op == "call_function" and joint.in_forward[i]
            for s in joint.storages[i]
        }
    kept = {s for i in (*joint.forward_results, *joint.backward_results) for s in joint.storages[i]}
    kept |= {s for i, node in enumerate(joint.nodes) if node.op != "call_function" for s in joint.storages[i]}
    waiting = {i: sum(j in place for j in joint.inputs[i]) for i in order}
    previous: int | None = None
    for i in order:
        if joint.impure[i] or joint.is_collective[i]:
            if previous is not None:
                waiting[i] += 1
            previous = i
    following: dict[int, int] = {}
    previous = None
    for i in order:
        if joint.impure[i] or joint.is_collective[i]:
            if previous is not None:
                following[previous] = i
            previous = i

    taken = {i: sum(joint.storage_bytes[s] for s in joint.storages[i] if s not in read[i]) for i in order}
    freeable = {i: [s for s in read[i] if s in freeable_at_all and s not in kept] for i in order}

    def gain(i: int) -> int:
        return sum(joint.storage_bytes[s] for s in freeable[i] if readers[s] == 1) - taken[i]

    ready = [place[i] for i in order if not waiting[i]]
    heapq.heapify(ready)
    result: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        if gain(order[number]) < 0:
            better = [n for n in ready if gain(order[n]) >= 0 and not joint.is_alias[order[n]]]
            if better:
                heapq.heappush(ready, number)
                number = min(better)
                ready.remove(number)
                heapq.heapify(ready)
        i = order[number]
        result.append(i)
        for s in read[i]:
            readers[s] -= 1
        for user in [u for u in joint.users[i] if u in place] + ([following[i]] if i in following else []):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, place[user])
    assert len(result) == len(order)
    return result
