"""Gradients of outputs that no loss depends on: undefined, as in eager.

AOTAutograd compiles one backward for all outputs of a graph. Where an output is not used, autograd hands that backward
zeros, and it returns zeros for the inputs that only this output depends on. Eager leaves the gradient of such an input
alone: None stays None, and an optimizer does not decay the parameter. Worse, the zeros make the backwards of whatever
computed the input run, and what those saved may have been overwritten since.

So a compiled function is told which of its outputs are not used; it fills in the zeros itself, and returns None for
inputs that no used output reaches::

    gradients of the outputs ──> all undefined?  ──yes──> all None, nothing runs
            │ no
            ▼
    zeros for the undefined ──> compiled backward ──> None where only undefined ones lead
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.effects import fake_like, leaves_reached, without_inference_mode

__all__ = ["GradientPaths", "find_gradient_paths", "respect_undefined_gradients"]


@dataclasses.dataclass(frozen=True)
class GradientPaths:
    """To which inputs of a graph gradients flow.

    Args:
        outputs: For each output, the positions of the inputs that its gradient reaches.
        inputs: The same for the inputs as the graph leaves them: one that is written carries a gradient too.
    """

    outputs: tuple[frozenset[int], ...]
    inputs: tuple[frozenset[int], ...]

    def reached_from(self, tangent: _compat.Tangent) -> frozenset[int]:
        """Return the positions of the inputs that the gradient of a returned value reaches."""
        if tangent.written_input is not None:
            return self.inputs[tangent.written_input]
        return frozenset().union(*(self.outputs[i] for i in tangent.outputs))


def find_gradient_paths(gm: fx.GraphModule, inputs: Sequence[Any]) -> GradientPaths | None:
    """Run a graph on fake versions of its inputs, and follow the histories that autograd records.

    Args:
        gm: A graph as Dynamo captured it.
        inputs: Its inputs. Only looked at.

    Returns:
        None if the graph can't be run on fake tensors.
    """
    mode = _compat.new_fake_mode()
    try:
        fakes = [fake_like(x, mode) if isinstance(x, torch.Tensor) else _compat.concrete(x) for x in inputs]
        positions = {id(leaf): i for i, fake in enumerate(fakes) for leaf in _leaves(fake)}

        def reached(values: Sequence[Any]) -> tuple[frozenset[int], ...]:
            return tuple(
                frozenset(positions[id(leaf)] for leaf in _leaves(value) if id(leaf) in positions)
                for value in values
            )

        with without_inference_mode(), _compat.tracing_under(mode), mode:
            outputs = _compat.pytree.tree_leaves(gm(*fakes))
        return GradientPaths(reached(outputs), reached(fakes))
    except Exception:
        return None


def _leaves(value: Any) -> Sequence[torch.Tensor]:
    return leaves_reached(value) if isinstance(value, torch.Tensor) else ()


def respect_undefined_gradients(
    function: type[torch.autograd.Function],
    tangents: Mapping[int, _compat.Tangent],
    paths: Callable[[], GradientPaths | None],
) -> None:
    """Make a compiled function treat undefined gradients of its outputs as eager does.

    Args:
        function: What AOTAutograd has compiled. Changed.
        tangents: Position of each returned value whose gradient the compiled backward takes, and where that value
            comes from.
        paths: Called if there are several such values. None leaves the zeros that AOTAutograd returns.
    """
    forward, backward = function.forward, function.backward
    boxed = getattr(
        function, "boxed_grads_call", False
    )  # from torch 2.13: one list, which the backward empties
    found = paths() if len(tangents) > 1 else None
    reached = {} if found is None else {k: found.reached_from(tangent) for k, tangent in tangents.items()}

    def call_forward(ctx: Any, *inputs: Any) -> Any:
        ctx.set_materialize_grads(False)
        return forward(ctx, *inputs)

    def call_backward(ctx: Any, *args: Any) -> Any:
        grads = args[0] if boxed else list(args)
        undefined = [k for k in tangents if grads[k] is None]
        if not undefined:
            return backward(ctx, *args)
        if len(undefined) == len(tangents):
            return (None,) * len(ctx.needs_input_grad)
        used = [k for k in tangents if grads[k] is not None]
        for k in undefined:
            grads[k] = _zeros_for(ctx, k)
        results = backward(ctx, grads) if boxed else backward(ctx, *grads)
        if len(results) != len(ctx.needs_input_grad) or not reached:
            return results
        wanted = frozenset().union(*(reached[k] for k in used))
        return tuple(gradient if i in wanted else None for i, gradient in enumerate(results))

    key: Callable[[Any], Any] = function._compiled_autograd_key

    def call_key(ctx: Any) -> Any:
        # Compiled autograd asks for it before it traces the backward, which it does without calling ours.
        ctx.set_materialize_grads(True)
        return key(ctx)

    replaced = {"forward": call_forward, "backward": call_backward, "_compiled_autograd_key": call_key}
    for name, replacement in replaced.items():
        setattr(function, name, staticmethod(replacement))


def _zeros_for(ctx: Any, position: int) -> torch.Tensor:
    """Return zeros for the gradient of a returned value, as autograd would make them."""
    like = ctx._input_metadata[position]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
