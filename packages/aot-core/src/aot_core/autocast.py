"""Autocast states, and graphs that carry theirs.

Eager runs a backward under the autocast state in force when ``.backward()`` is called, and a forward under
the one in force when the model is called. AOTAutograd has one ambient state for both. So the forward's state
is written into the graph, the way Dynamo writes a ``with torch.autocast`` that stands inside the model, and
the ambient state of the trace is left to the backward.

Before, traced under bfloat16 autocast::

    def graph(x, w):
        return x @ w

After, traced under any autocast state::

    def graph(x, w):
        state = _enter_autocast("cpu", torch.bfloat16, True, None)
        y = x @ w
        _exit_autocast(state)
        return y
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import fx

from aot_core import _compat
from aot_core.graph_copy import copy_graph

__all__ = [
    "AUTOCAST_OFF",
    "AutocastState",
    "autocast_state",
    "describe",
    "only_autocast",
    "with_forward_autocast",
]

AutocastState = tuple[tuple[str, torch.dtype], ...]
"""The device types for which autocast is on, each with its dtype. Hashable; empty when it is off."""

AUTOCAST_OFF: AutocastState = ()


def autocast_state() -> AutocastState:
    """Return the autocast state of the calling thread."""
    if not _compat.any_autocast_enabled():
        return AUTOCAST_OFF
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in _compat.autocast_devices()
        if torch.is_autocast_enabled(device)
    )


def describe(state: AutocastState) -> str:
    """Return a state as text: ``"cpu:bfloat16"``, or ``"off"``."""
    return ",".join(f"{device}:{str(dtype).removeprefix('torch.')}" for device, dtype in state) or "off"


@contextlib.contextmanager
def only_autocast(state: AutocastState) -> Iterator[None]:
    """Put exactly this state in force, and put the old one back, however the block ends.

    A trace that fails between ``_enter_autocast`` and ``_exit_autocast`` nodes leaves both the state and
    torch's nesting count behind; a count that never returns to zero would keep cast weights cached for good.
    """
    before = autocast_state()
    nesting = _autocast_nesting()
    try:
        with contextlib.ExitStack() as stack:
            for device, dtype in before:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=False))
            for device, dtype in state:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield
    finally:
        for device, dtype in autocast_state():
            if (device, dtype) not in before:
                torch.set_autocast_enabled(device, False)
        while _autocast_nesting() > nesting:
            torch.autocast_decrement_nesting()
        if nesting == 0:
            torch.clear_autocast_cache()


def with_forward_autocast(
    gm: fx.GraphModule, forward: AutocastState, *, ambient: AutocastState
) -> fx.GraphModule:
    """Return a graph that runs under ``forward`` wherever it is traced under ``ambient``.

    The given graph is not touched, and returned itself when there is nothing to write into it.
    """
    switches: list[tuple[str, torch.dtype | None, bool]]
    switches = [(device, dtype, True) for device, dtype in forward if (device, dtype) not in ambient]
    switches += [(device, None, False) for device, _ in ambient if device not in dict(forward)]
    if not switches:
        return gm

    def enter_and_leave(graph: fx.Graph, first: fx.Node | None) -> None:
        enter, leave = _compat.AUTOCAST_NODES
        with graph.inserting_before(first) if first is not None else contextlib.nullcontext():
            entered = [graph.call_function(enter, (*switch, None)) for switch in switches]
        for switch in reversed(entered):
            graph.call_function(leave, (switch,))

    return copy_graph(gm, around=enter_and_leave)


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()
