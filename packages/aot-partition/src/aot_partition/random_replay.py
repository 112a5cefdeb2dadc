"""Random nodes that the backward computes again: they draw what the forward drew.

::

    forward:   drawn = bernoulli(p)      →   state, drawn = run_and_save_rng_state(bernoulli, p)
    backward:  drawn = bernoulli(p)      →   drawn = run_with_rng_state(state, bernoulli, p)

A generator is left as it was found by the second, so that random numbers drawn after a backward are those of
eager PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx

from aot_partition import _compat
from aot_partition.joint_graph import JointGraph

__all__ = ["RandomReplay", "is_replayable"]


def is_replayable(node: fx.Node) -> bool:
    """Tell whether a random node can be drawn again from a saved state.

    Only the state of the default generator is saved, so that a node with a generator of its own is not; and
    which device's generator that is must show in the arguments.
    """
    on_device = node.kwargs.get("device") is not None or any(isinstance(a, fx.Node) for a in node.args)
    return (
        on_device
        and getattr(node.target, "namespace", None) == "aten"
        and node.kwargs.get("generator") is None
        and not _compat.is_mutable_schema(node.target)
    )


class RandomReplay:
    """The random nodes that both graphs compute, and their generators' states.

    Attributes:
        replayed: Their positions, in graph order; a dictionary without values.
        states: The forward's nodes that hold the states, in the order in which they are saved.
    """

    def __init__(self, joint: JointGraph, computed_by_backward: bytearray) -> None:
        self._joint = joint
        self.replayed = dict.fromkeys(
            i
            for i, random in enumerate(joint.is_random)
            if random and computed_by_backward[i] and joint.in_forward[i]
        )
        self.states: list[fx.Node] = []
        self._state_inputs: dict[int, fx.Node] = {}

    def draw(self, graph: fx.Graph, i: int, env: Mapping[fx.Node, fx.Node]) -> fx.Node:
        """Add the drawing to the forward, with the state before it; return the value."""
        node = self._joint.nodes[i]
        value = node.meta["val"]
        target: Any = node.target
        args = fx.map_arg(node.args, env.__getitem__)
        kwargs = fx.map_arg(node.kwargs, env.__getitem__)
        pair = graph.call_function(_compat.run_and_save_rng_state(), (target, *args), kwargs)
        state = graph.create_node("call_function", operator.getitem, (pair, 0), {}, f"{node.name}_rng_state")
        state.meta["val"] = _compat.fake_rng_state(value)
        pair.meta["val"] = (state.meta["val"], value)
        drawn = graph.create_node("call_function", operator.getitem, (pair, 1), {}, node.name)
        drawn.meta = dict(node.meta)
        self.states.append(state)
        return drawn

    def add_state_inputs(self, graph: fx.Graph) -> None:
        """Add the backward's inputs for the states."""
        for number, (i, state) in enumerate(zip(self.replayed, self.states, strict=True)):
            given = graph.placeholder(f"rng_state_output_{number}")
            given.meta["val"] = state.meta["val"]
            self._state_inputs[i] = given

    def draw_again(self, graph: fx.Graph, i: int, env: Mapping[fx.Node, fx.Node]) -> fx.Node:
        """Add the drawing to the backward, from the forward's state; return the value."""
        node = self._joint.nodes[i]
        target: Any = node.target
        args = fx.map_arg(node.args, env.__getitem__)
        kwargs = fx.map_arg(node.kwargs, env.__getitem__)
        state = self._state_inputs[i]
        drawn = graph.create_node(
            "call_function", _compat.run_with_rng_state(), (state, target, *args), kwargs, node.name
        )
        drawn.meta = dict(node.meta)
        return drawn
