"""Below which peak no plan of a step can exist, whatever it recomputes."""

from __future__ import annotations

from aot_partition.memory.problem import Problem

__all__ = ["largest_working_set", "least_conceivable_peak"]


def least_conceivable_peak(problem: Problem) -> int:
    """Return a peak in bytes that every schedule reaches.

    In the forward no value goes before the forward's last read of it, and each operation of the backward needs
    its arguments, its results, the backward's own values, the tangents and the forward's outputs at once. Of
    what can't be recomputed, all that a later operation reads is there too.
    """
    kept = _irreplaceable(problem)
    forward = int(problem.forward_memory(frozenset()).max(initial=0))
    constant = problem.output_bytes + problem.tangent_bytes
    before, during = problem.backward_own
    most = forward
    for t, needs in enumerate(problem.needs):
        lasting = sum(size for s, (size, last) in kept.items() if last > t and s not in needs)
        here = sum(problem.sizes[s] for s in needs)
        most = max(most, constant + lasting + here + during[t], constant + lasting + before[t])
    return most


def largest_working_set(problem: Problem) -> int:
    """Return the bytes of the largest single operation: what it reads and makes, and its scratch."""
    return max(
        (
            sum(problem.sizes[s] for s in {*operation.reads, *operation.makes}) + operation.scratch
            for operation in (*problem.forward, *problem.backward)
        ),
        default=0,
    )


def _irreplaceable(problem: Problem) -> dict[int, tuple[int, int]]:
    """Map what must be saved to its bytes and the last operation of the backward that reads it itself."""
    last: dict[int, int] = {}
    for t, needs in enumerate(problem.needs):
        for s in needs:
            last[s] = t
    return {
        s: (problem.sizes[s], t) for s, t in last.items() if not problem.forward[problem.maker[s]].replayable
    }
