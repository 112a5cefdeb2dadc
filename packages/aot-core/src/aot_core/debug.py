"""Backends without a compiler, to tell which stage of a compile breaks a model.

============================  ===========================================================
``aot_core_eager``            Dynamo and AOTAutograd; eager kernels run the traced graphs
``aot_inductor_debug``        the same with Inductor's decompositions and partitioner
============================  ===========================================================

A model that works with the first and fails with the second is broken by a decomposition or by recomputation;
one that works with both and fails with Inductor, by its code generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from aot_core import _compat
from aot_core.backend import aot_autograd
from aot_core.boxed_calls import boxed_code
from aot_core.compilation import current_compilation
from aot_core.graph_check import CrossrefInterpreter, MetadataInterpreter, interpreted
from aot_core.protocol import BoxedCallable
from aot_core.settings import Settings

if TYPE_CHECKING:
    from torch import fx

__all__ = ["DebugSettings", "aot_core_eager", "aot_inductor_debug", "run_eagerly"]


@dataclasses.dataclass(frozen=True)
class DebugSettings(Settings):
    """Options of the debug backends.

    Args:
        check: ``"none"`` runs the graphs as generated code. ``"metadata"`` interprets them and compares the
            dtype, size and strides of each value with what the trace promised. ``"crossref"`` also runs each
            operation's meta function on the values that it got, and compares.
    """

    check: Literal["none", "metadata", "crossref"] = "none"


def run_eagerly(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a graph to itself: its operations run with eager kernels, inputs freed after their last use."""
    settings = cast(DebugSettings, current_compilation().settings)
    if settings.check == "metadata":
        return interpreted(gm, MetadataInterpreter)
    if settings.check == "crossref":
        return interpreted(gm, CrossrefInterpreter)
    return boxed_code(gm)


aot_core_eager = aot_autograd(
    name="aot_core_eager",
    fw_compiler=run_eagerly,
    settings=DebugSettings,
    tags=("training", "inference", "debug", "cpu", "cuda"),
    keep_inference_input_mutations=True,
)

aot_inductor_debug = aot_autograd(
    name="aot_inductor_debug",
    fw_compiler=run_eagerly,
    partition_fn=_compat.inductor_partition,
    decompositions=_compat.inductor_decompositions,
    settings=DebugSettings,
    tags=("training", "inference", "debug", "cpu", "cuda"),
    keep_inference_input_mutations=True,
)
