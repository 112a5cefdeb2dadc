"""What AOTAutograd can't run, seen before it is asked to.

The test looks at the *graph*: the modules that a user wrote don't reach a backend, their operations do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from aot_core.protocol import Decision
from aot_core.source import source_line

if TYPE_CHECKING:
    from torch import fx

__all__ = ["find_unsafe", "is_aot_autograd_safe_to_run"]

log = logging.getLogger(__name__)

# LSTM operations under all the spellings that reach a backend: Dynamo's (with allow_rnn), and ATen's for
# graphs traced by other means. Their backward saves values that AOTAutograd's contract does not admit
# (pytorch/pytorch#158007; an assertion in torch 2.10 to 2.13). GRU and plain RNN cells are fine.
_LSTM_CALLS = frozenset(
    {torch.lstm, torch.ops.aten.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data}
)


def find_unsafe(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Iterator[Decision]:
    """Yield a `Decision` for each node that AOTAutograd can't run with these inputs.

    An LSTM is unsafe only where a backward will be traced: gradients are on, and an input or a parameter of
    the graph requires one.
    """
    if not torch.is_grad_enabled() or not _wants_gradients(gm, example_inputs):
        return
    for node in gm.graph.nodes:
        if node.target in _LSTM_CALLS if node.op == "call_function" else _is_lstm_module(gm, node):
            yield Decision(
                stage="safety",
                subject=node.name,
                action="fallback",
                code="lstm-training",
                detail="AOTAutograd can't trace the backward of an LSTM",
                source=source_line(node),
            )


def is_aot_autograd_safe_to_run(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Tell whether AOTAutograd can run a graph. Each reason why not is logged once.

    Args:
        gm: Graph as Dynamo hands it to a backend.
        example_inputs: Its inputs; only their ``requires_grad`` is looked at.
    """
    safe = True
    for decision in find_unsafe(gm, example_inputs):
        safe = False
        warn_once(decision)
    return safe


_warned: set[str] = set()


def warn_once(decision: Decision) -> None:
    """Log a fallback as a warning, the first time that its cause is met in this process."""
    if decision.code not in _warned:
        _warned.add(decision.code)
        log.warning("%s. The graph runs as it is, uncompiled.", decision)


def forget_warnings() -> None:
    """Have `warn_once` warn of everything again."""
    _warned.clear()


def _wants_gradients(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    return any(t.requires_grad for t in (*tensors, *gm.parameters(), *gm.buffers()))


def _is_lstm_module(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(gm.get_submodule(str(node.target)), torch.nn.LSTM)
