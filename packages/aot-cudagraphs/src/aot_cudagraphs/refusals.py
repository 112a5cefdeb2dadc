"""What a CUDA graph can't hold, and why: one table, `refusal_table`, asked ahead of time and while capturing.

A graph records what the device is asked to do. What the host does in between is not recorded: it happens once, while
capturing. So whatever the host would have to learn from the device before it can go on is refused by CUDA ("operation
not permitted when stream is capturing"), or, where CUDA can't know, would silently keep its first answer.

`refusal_of_call` asks the table about a call that is about to happen, `refusal_of_node` about a node of a graph that
was traced. Neither looks at a tensor's values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_cudagraphs import _compat
from aot_cudagraphs.refusal_table import RULES, Call

__all__ = ["Refusal", "named_refusal", "on_cpu", "refusal_of_call", "refusal_of_node"]


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why an operation can't be captured.

    Args:
        op: The operation, ``"aten.nonzero.default"``.
        code: A stable kebab-case identifier of the reason.
        reason: What it does that a graph can't hold, as half a sentence.
        remedy: What to do about it, as a sentence.
    """

    op: str
    code: str
    reason: str
    remedy: str


# Higher-order operators.
_HOST_DECIDES = {"cond", "while_loop"}
_HOST_STATE = {"run_and_save_rng_state", "run_with_rng_state"}


def on_cpu(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies in host memory, by its device."""
    return tensor.device.type == "cpu"


def named_refusal(code: str, op: str) -> Refusal:
    """Return the refusal, for a known reason, of what is called ``op``: often not an operator."""
    rule = next(rule for rule in RULES if rule.code == code)
    return Refusal(op, code, rule.reason, rule.remedy)


def refusal_of_call(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    is_host: Callable[[torch.Tensor], bool] = on_cpu,
) -> Refusal | None:
    """Tell why a call of an operator can't be captured, or None if it can.

    Args:
        op: An operator with its overload, ``torch.ops.aten.nonzero.default``.
        args: Its positional arguments; tensors may be fake.
        kwargs: Its keyword arguments.
        is_host: Tells which tensors lie in host memory.
    """
    named = {argument.name: value for argument, value in zip(op._schema.arguments, args, strict=False)}
    call = Call(op, {**named, **kwargs}, is_host)
    for rule in RULES:
        if rule.refuses(call):
            return Refusal(str(op), rule.code, rule.reason, rule.remedy)
    return None


def refusal_of_node(node: fx.Node, *, is_host: Callable[[torch.Tensor], bool] = on_cpu) -> Refusal | None:
    """Tell why a node of a graph of ATen operations can't be captured, or None if it can.

    Subgraphs of higher-order operators are looked into. A node that makes a tensor in host memory is refused, since
    a replay would not make it again.

    Args:
        node: A node; the nodes it uses carry ``meta["val"]``.
        is_host: Tells which (fake) tensors lie in host memory: those on the CPU, unless a whole graph on the CPU is
            to be captured by the simulator.
    """
    if node.op in ("placeholder", "get_attr", "output"):
        return None
    if node.op != "call_function":
        return named_refusal("unknown-call", f"{node.op} {node.target}")
    if _compat.is_higher_order(node.target):
        return _refusal_of_higher_order(node, is_host)
    if not _compat.is_operator(node.target):
        # Arithmetic on sizes and taking elements of tuples is done once and gives the same each time.
        return None
    values = _compat.pytree.tree_map_only(fx.Node, _value_of, (node.args, node.kwargs))
    refusal = refusal_of_call(node.target, values[0], values[1], is_host=is_host)
    if refusal is None and _makes_host_tensor(node, is_host):
        return named_refusal("host-work", str(node.target))
    return refusal


def _value_of(node: fx.Node) -> Any:
    return node.meta.get("val")


def _makes_host_tensor(node: fx.Node, is_host: Callable[[torch.Tensor], bool]) -> bool:
    results = _compat.pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(result, torch.Tensor) and is_host(result) for result in results)


def _refusal_of_higher_order(node: fx.Node, is_host: Callable[[torch.Tensor], bool]) -> Refusal | None:
    target: Any = node.target
    name = target.name()
    if name in _HOST_DECIDES:
        return named_refusal("host-control-flow", name)
    if name in _HOST_STATE:
        return named_refusal("host-random-state", name)
    owner: Any = node.graph.owning_module
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and owner is not None:
            graph = getattr(owner, str(argument.target), None)
            if isinstance(graph, fx.GraphModule):
                for inner in graph.graph.nodes:
                    refusal = refusal_of_node(inner, is_host=is_host)
                    if refusal is not None:
                        return refusal
    operator = next((value for value in node.args if _compat.is_operator(value)), None)
    if operator is None:
        return None
    position = node.args.index(operator)
    values = _compat.pytree.tree_map_only(fx.Node, _value_of, (node.args[position + 1 :], node.kwargs))
    return refusal_of_call(operator, values[0], values[1], is_host=is_host)
