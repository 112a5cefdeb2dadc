"""Outputs that lie in an input's memory with a history that no compiled graph can give them.

Some are known to autograd otherwise than to AOTAutograd, which returns what lies in an input's memory as an
ordinary view of that input:

- a *view made under no_grad*: it requires a gradient, since its base does, and passes none on;
- a *detached alias that came to require a gradient*, since something that does was written to it::

      y = x.detach()
      y.copy_(z)          # y lies in x's memory, and its gradient goes to z
      return y

What is computed from a view made under ``no_grad`` requires a gradient too, which leads nowhere.

The first is made again outside, from the input. Of the second the graph returns a copy besides, and outside the
alias is overwritten with it: the same elements once more, in sight of autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from aot_core import _compat
from aot_core.graph_copy import copy_graph

__all__ = ["detach_outputs", "return_histories", "with_dead_ends", "with_histories", "with_unrecorded_views"]


def return_histories(gm: fx.GraphModule, positions: Sequence[int]) -> fx.GraphModule:
    """Return a graph that returns outputs without their history, and at the end, for each, a copy with it.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        positions: Of the outputs that are detached aliases with a history of their own.
    """

    def outputs(values: Any) -> Any:
        graph: fx.Graph = values[positions[0]].graph
        copies = [graph.call_method("clone", (values[i],)) for i in positions]
        aliases = {i: graph.call_method("detach", (values[i],)) for i in positions}
        return (*(aliases.get(i, value) for i, value in enumerate(values)), *copies)

    return copy_graph(gm, outputs=outputs)


def with_histories(compiled: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """Return a function that does what the graph did that was given to `return_histories`.

    Args:
        compiled: A function that does what it returned.
        positions: As there.
    """

    def call(*inputs: Any) -> Any:
        outputs = compiled(*inputs)
        count = len(outputs) - len(positions)
        for i, copy in zip(positions, outputs[count:], strict=True):
            outputs[i].copy_(copy)
        return tuple(outputs[:count])

    return call


def detach_outputs(gm: fx.GraphModule, positions: Sequence[int]) -> fx.GraphModule:
    """Return a graph whose outputs at these positions are detached, for `with_unrecorded_views` to make anew.

    AOTAutograd would look for the history that a view made under ``no_grad`` seems to have (torch 2.10 fails there).
    """

    def outputs(values: Any) -> Any:
        graph: fx.Graph = values[positions[0]].graph
        return tuple(
            graph.call_method("detach", (value,)) if i in positions else value
            for i, value in enumerate(values)
        )

    return copy_graph(gm, outputs=outputs)


def with_unrecorded_views(
    compiled: Callable[..., Any], owners: Mapping[int, int | None]
) -> Callable[..., Any]:
    """Return a function some of whose outputs are views made under ``no_grad``.

    Args:
        compiled: A function of the inputs, which returns other aliases there.
        owners: Position of such an output → position of the input in whose memory it lies, or None if it lies in
            none's.
    """

    def call(*inputs: Any) -> Any:
        outputs = list(compiled(*inputs))
        for i, owner in owners.items():
            outputs[i] = _compat.unrecorded_view(outputs[i], None if owner is None else inputs[owner])
        return tuple(outputs)

    return call


def with_dead_ends(compiled: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """Return a function whose outputs at these positions require a gradient that leads to no input."""

    def call(*inputs: Any) -> Any:
        outputs = list(compiled(*inputs))
        for i in positions:
            if not outputs[i].requires_grad:
                end = outputs[i].detach().requires_grad_()
                outputs[i] = end.view_as(end)
        return tuple(outputs)

    return call
