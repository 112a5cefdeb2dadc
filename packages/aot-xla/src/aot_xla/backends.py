"""The four backends: two ways to run a graph on XLA, each for training and for inference alone.

===========================  =============================================================
``aot_torchxla_trace_once``  traces each graph once per set of shapes
``aot_torchxla_trivial``     notes each graph's operations at every call
``torchxla_trace_once``      the first, for inference: its backward raises
``torchxla_trivial``         the second, for inference: its backward raises
===========================  =============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from aot_core import aot_autograd, boxed, current_compilation, record_decision
from aot_xla.decompositions import decompositions
from aot_xla.errors import InferenceOnlyError
from aot_xla.partition import partition
from aot_xla.placed_graph import compile_for_xla
from aot_xla.settings import XlaSettings

if TYPE_CHECKING:
    from torch import fx

    from aot_core.protocol import BoxedCallable

__all__ = [
    "aot_torchxla_trace_once",
    "aot_torchxla_trivial",
    "torchxla_trace_once",
    "torchxla_trivial",
]


def trace_once(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a graph to an XLA computation for each set of shapes it is called with."""
    return compile_for_xla(gm, trace_once=True)


def trivial(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a graph to itself, noted on XLA at each call."""
    return compile_for_xla(gm, trace_once=False)


def refuse_backward(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a backward to an error.

    Forwards are wanted where a gradient could follow: a model in evaluation, called without ``no_grad``. So the
    forward is right, and who calls ``.backward()`` is told.
    """
    subject, name = current_compilation().subject, current_compilation().backend
    record_decision("the backward", "skip", "inference-only", f"{name} compiles for inference")

    def refuse(args: list[Any]) -> NoReturn:
        raise InferenceOnlyError(
            f"{subject} was compiled for inference, and .backward() was called. Train with "
            f"torch.compile(model, backend='aot_{name}')."
        )

    return boxed(refuse)


aot_torchxla_trace_once = aot_autograd(
    name="aot_torchxla_trace_once",
    fw_compiler=trace_once,
    partition_fn=partition,
    decompositions=decompositions,
    settings=XlaSettings,
    tags=("training", "inference", "xla"),
)

aot_torchxla_trivial = aot_autograd(
    name="aot_torchxla_trivial",
    fw_compiler=trivial,
    partition_fn=partition,
    decompositions=decompositions,
    settings=XlaSettings,
    tags=("training", "inference", "xla"),
)

torchxla_trace_once = aot_autograd(
    name="torchxla_trace_once",
    fw_compiler=trace_once,
    bw_compiler=refuse_backward,
    partition_fn=partition,
    decompositions=decompositions,
    settings=XlaSettings,
    tags=("inference", "xla"),
)

torchxla_trivial = aot_autograd(
    name="torchxla_trivial",
    fw_compiler=trivial,
    bw_compiler=refuse_backward,
    partition_fn=partition,
    decompositions=decompositions,
    settings=XlaSettings,
    tags=("inference", "xla"),
)
