"""The cut between forward and backward: what autograd would save, and never a random number twice.

Checkpointed parts of a model are computed again in the backward. torch lets their random numbers come out the same
by saving the state of a generator of the CPU or of CUDA, which says nothing about XLA. So they are saved instead.
"""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from aot_core import record_decision, source_line
from aot_xla import _compat
from aot_xla.randomness import is_random

__all__ = ["partition", "saved_positions"]

_SAVED = "aot_xla_saved"


def partition(
    joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph, and mark in the forward which outputs are saved for the backward."""
    keep_random_values_(joint)
    forward, backward = _compat.default_partition(
        joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
    )
    output = forward.graph.output_node()
    returned: Any = output.args[0]
    output.meta[_SAVED] = (num_fwd_outputs, len(returned))
    return forward, backward


def saved_positions(gm: fx.GraphModule) -> range:
    """Return which outputs of a graph are saved for the backward; none of one that was not cut here."""
    return range(*gm.graph.output_node().meta.get(_SAVED, (0, 0)))


def keep_random_values_(joint: fx.GraphModule) -> None:
    """Have random values saved that were marked to be computed again, in place."""
    for node in joint.graph.nodes:
        if is_random(node) and "recompute" in node.meta:
            # Of several results each is saved by itself.
            several = isinstance(node.meta.get("val"), (tuple, list))
            for value in node.users if several else (node,):
                value.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            record_decision(
                node.name,
                "save",
                "random-not-recomputed",
                "it draws random numbers in a checkpointed part, which would come out otherwise in the backward",
                source=source_line(node),
            )
