"""Find what repeats: values that play the same role in layers that are alike.

::

    layer 0   norm ── mm ── gelu ── mm ── add        norm of layer 0, norm of layer 1, …: one role
    layer 1   norm ── mm ── gelu ── mm ── add        gelu of layer 0, gelu of layer 1, …: another

What is worth saving in one layer is mostly worth saving in the others, so that a search decides it for all of them
at once.
"""

from __future__ import annotations

from aot_partition.memory.problem import Operation, Problem

__all__ = ["roles"]

ROUNDS = 1
"""How far around an operation is looked at: operations that differ further away count as alike."""


def roles(problem: Problem) -> list[tuple[frozenset[int], ...]]:
    """Return groups of operations that play the same role, each as what its members make, in the forward's order.

    What is unique is in no group. Operations are alike if they take as long, read and make as many bytes, and if
    what they read comes of operations that are alike and what they make is read by such, in the forward and in the
    backward: a hash of the structure, refined as Weisfeiler and Leman do.
    """
    own = [_own(problem, operation) for operation in problem.forward]
    after = [_own(problem, operation) for operation in problem.backward]
    read_after: dict[int, list[int]] = {s: [] for s in problem.maker}
    for t, needs in enumerate(problem.needs):
        for s in needs:
            read_after[s].append(after[t])
    color = own
    for _ in range(ROUNDS):
        color = [
            hash(
                (
                    color[k],
                    tuple(color[problem.maker[s]] for s in operation.reads if s in problem.maker),
                    tuple(
                        (tuple(sorted(color[r] for r in problem.readers[s])), tuple(sorted(read_after[s])))
                        for s in operation.makes
                    ),
                )
            )
            for k, operation in enumerate(problem.forward)
        ]
    groups: dict[int, list[frozenset[int]]] = {}
    for k, operation in enumerate(problem.forward):
        made = frozenset(s for s in operation.makes if problem.sizes[s] and s not in problem.outputs)
        if made and operation.replayable:
            groups.setdefault(color[k], []).append(made)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _own(problem: Problem, operation: Operation) -> int:
    sizes = problem.sizes
    return hash(
        (
            operation.seconds,
            operation.scratch,
            operation.replayable,
            tuple(sizes[s] for s in operation.reads),
            tuple(sizes[s] for s in operation.makes),
        )
    )
