"""A graph made such that AOTAutograd tells all that it does: whatever memory its inputs share.

What AOTAutograd doesn't tell is done outside, before the call or after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.effects import Effects, copies_or_views, find_effects, node_name
from aot_core.aliasing.explicit_copies import make_copies_explicit
from aot_core.aliasing.histories import (
    detach_outputs,
    return_histories,
    with_dead_ends,
    with_histories,
    with_unrecorded_views,
)
from aot_core.aliasing.memory import has_memory, overlaps_itself
from aot_core.aliasing.refusals import refuse_unsupported
from aot_core.aliasing.same_tensors import SameTensors, are_noted, find_same_tensors
from aot_core.aliasing.single_views import split_returned_views

__all__ = ["PreparedGraph", "prepare"]


@dataclasses.dataclass(frozen=True)
class PreparedGraph:
    """What to compile in the place of a graph, and what it leaves to be done.

    Args:
        gm: The graph to compile.
        effects: What it does to its inputs, if that was looked up.
        histories: Positions of the outputs that are to be given a history; see `return_histories`.
        dead_ends: Positions of those that require a gradient which leads nowhere; see `with_dead_ends`.
        same: Outputs that the graph no longer returns, since they are inputs or other outputs.
    """

    gm: fx.GraphModule
    effects: Effects | None
    histories: Sequence[int]
    dead_ends: Sequence[int]
    same: SameTensors

    def finish(
        self, compiled: Callable[..., Any], unrecorded: Mapping[int, int | None]
    ) -> Callable[..., Any]:
        """Return a function that does what the graph did before it was prepared.

        Args:
            compiled: A function that does what ``gm`` does; returned as it is, if nothing is to be done.
            unrecorded: The outputs that `with_unrecorded_views` has to make anew, as `Effects` has them.
        """
        if self.histories:
            compiled = with_histories(compiled, self.histories)
        if self.dead_ends:
            compiled = with_dead_ends(compiled, self.dead_ends)
        if unrecorded:
            compiled = with_unrecorded_views(compiled, unrecorded)
        return self.same.put_back(compiled) if self.same else compiled


def prepare(gm: fx.GraphModule, inputs: Sequence[Any], *, subject: str) -> PreparedGraph:
    """Prepare a graph for AOTAutograd.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        inputs: Its inputs. Only looked at.
        subject: What an error calls the graph.

    Raises:
        UnsupportedAliasingError: it writes in a way that can't be supported.
    """
    gm = split_returned_views(gm)
    effects = find_effects(gm, inputs) if _needs_a_look(gm, inputs) else None
    histories: Sequence[int] = ()
    dead_ends: Sequence[int] = ()
    if effects is not None:
        refuse_unsupported(gm, inputs, effects, subject=subject)
        if effects.copies:
            gm = make_copies_explicit(gm, effects.copies)
        if torch.is_grad_enabled():
            histories, dead_ends = effects.detached, effects.dead_ends
            if histories:
                gm = return_histories(gm, histories)
            if effects.lone_views:
                gm = detach_outputs(gm, effects.lone_views)
    same = find_same_tensors(gm, effects)
    if same:
        gm = same.removed_from(gm)
    return PreparedGraph(gm, effects, histories, dead_ends, same)


def _needs_a_look(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Tell whether effects of a graph could matter that AOTAutograd doesn't tell; looking costs a fake run."""
    tensors = [x for x in inputs if has_memory(x)]
    return (
        not are_noted(gm)
        or any(map(overlaps_itself, tensors))
        or any(_compat.hides_from_autograd(n) or node_name(n) in _GEOMETRY_CHANGES for n in gm.graph.nodes)
        or (any(map(copies_or_views, gm.graph.nodes)) and not all(x.is_contiguous() for x in tensors))
    )


_GEOMETRY_CHANGES = frozenset(
    f"{name}_"
    for name in (
        *("as_strided", "resize", "resize_as", "set", "squeeze", "swapaxes", "swapdims", "t", "transpose"),
        "unsqueeze",
    )
)
