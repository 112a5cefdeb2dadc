"""How higher-order operators pass their operands on to the graphs or operators that they call.

Each of them has its own calling convention, which no schema tells. This table does, by the operator's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["FUNCTIONAL", "Call", "called_graphs", "wrapped_operator"]

FUNCTIONAL = frozenset(
    {
        "auto_functionalized",
        "auto_functionalized_v2",
        "flex_attention",
        "flex_attention_backward",
        "triton_kernel_wrapper_functional",
    }
)
"""Operators that by construction write none of their operands and return new memory."""


class Call(NamedTuple):
    """The graphs that a higher-order operator may call, each with the same operands."""

    graphs: Sequence[Any]
    operands: Sequence[Any]


_CONVENTIONS: dict[str, Callable[..., Call]] = {
    "cond": lambda pred, then, other, operands=(): Call([then, other], operands),
    "while_loop": lambda test, body, carried, extra=(): Call([test, body], [*carried, *extra]),
    # The graph is given slices of the xs, which are views of them.
    "map_impl": lambda graph, xs, extra=(): Call([graph], [*xs, *extra]),
    "scan": lambda graph, init, xs, extra=(): Call([graph], [*init, *xs, *extra]),
    "associative_scan": lambda graph, xs, extra=(): Call([graph], [*xs, *xs, *extra]),
    "invoke_subgraph": lambda graph, name, *operands: Call([graph], operands),
    "wrap": lambda graph, *operands: Call([graph], operands),
    "tag_activation_checkpoint": lambda graph, *operands: Call([graph], operands),
    "wrap_activation_checkpoint": lambda graph, *operands: Call([graph], operands),
    "wrap_with_set_grad_enabled": lambda enabled, graph, *operands: Call([graph], operands),
    "wrap_with_autocast": lambda device, dtype, enabled, cache, graph, *operands: Call([graph], operands),
    "hints_wrapper": lambda graph, operands=(), options=None, **hints: Call([graph], operands),
}


def called_graphs(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Call | None:
    """Return which graphs an operator calls with which operands, or None if it is not known."""
    convention = _CONVENTIONS.get(name)
    if convention is None:
        return None
    try:
        return convention(*args, **kwargs)
    except TypeError:
        # Another calling convention than the one known here: as good as none.
        return None


def wrapped_operator(
    name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Sequence[Any], dict[str, Any]] | None:
    """Return the operator that an operator calls, with its arguments, or None if it does not call one."""
    if name in ("with_effects", "run_with_rng_state"):
        return args[1], args[2:], kwargs
    if name == "run_and_save_rng_state":
        return args[0], args[1:], kwargs
    if name == "graphsafe_run_with_rng_state":
        return args[0], args[1:], {key: value for key, value in kwargs.items() if key != "rng_state"}
    return None
