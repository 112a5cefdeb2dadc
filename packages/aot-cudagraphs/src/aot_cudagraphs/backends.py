"""The backend ``aot_cudagraphs``.

::

    joint graph ── partition ──> forward, backward       cut as eager would: the same values are saved
       │                            │
       │                            ▼
       │                     islands, captured in one set of lanes
       ▼
    a Decision for each operation outside them
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from aot_core import aot_autograd, boxed, current_compilation, record_decision
from aot_core.protocol import BoxedCallable
from aot_cudagraphs.captured import CapturedGraph
from aot_cudagraphs.engine import Engine
from aot_cudagraphs.engines import engine_for
from aot_cudagraphs.islands import Partition, partition
from aot_cudagraphs.lanes import Lanes, lanes_for
from aot_cudagraphs.module import boxed_copy
from aot_cudagraphs.outputs import Destination
from aot_cudagraphs.settings import CaptureSettings

if TYPE_CHECKING:
    from torch import fx

__all__ = ["aot_cudagraphs"]

# Forward, backward, and the variants of one compiled graph find each other by its name, which is unique.
_lanes: weakref.WeakValueDictionary[tuple[str, torch.device], Lanes] = weakref.WeakValueDictionary()

_NUM_OUTPUTS = "aot_cudagraphs_num_outputs"


def save_as_eager(
    joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph so that the backward gets what eager autograd would save."""
    from functorch.compile import default_partition  # type: ignore[import-untyped]

    known = inspect.signature(default_partition).parameters
    kwargs = {name: value for name, value in kwargs.items() if name in known}
    forward, backward = default_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
    forward.meta[_NUM_OUTPUTS] = num_fwd_outputs
    return forward, backward


def compile_beginning(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a forward, or a graph that has no backward."""
    count = len(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    num_outputs = gm.meta.get(_NUM_OUTPUTS, count)
    returned: list[Destination] = ["caller"] * num_outputs
    saved: list[Destination] = ["passed"] * (count - num_outputs)
    return _compile(gm, returned + saved, continues=False)


def compile_backward(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile the backward of a forward with the same lanes."""
    count = len(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    return _compile(gm, ["caller"] * count, continues=True)


def _compile(gm: fx.GraphModule, destinations: Sequence[Destination], *, continues: bool) -> BoxedCallable:
    compilation = current_compilation()
    settings = cast(CaptureSettings, compilation.settings)
    engine = engine_for(settings.capture)
    part = partition(gm)
    if not engine.available_for(part.device):
        record_decision(
            "graph",
            "skip",
            "no-device-to-capture",
            f'capture="{settings.capture}" captures no tensors on {part.device.type}: the graph runs as it is',
        )
        return _as_it_is(gm)
    _record_partition(part)
    if not part.islands:
        return _as_it_is(gm)
    captured = CapturedGraph(
        gm,
        settings,
        part,
        _shared_lanes(compilation.graph, engine, part.device),
        destinations=destinations,
        continues=continues,
        # The wrapper around AOTAutograd sees to that.
        overlaps=False,
        looks_known=_known_looks(gm),
        decide=compilation.decide,
        engine=engine,
        name=f"{compilation.stage} of {compilation.graph}",
    )
    return boxed(_runner(captured))


def _known_looks(gm: fx.GraphModule) -> set[int]:
    """Return the positions of the inputs whose sizes and strides are fixed: by Dynamo's guards, or by the forward's.

    Of a tangent nobody has looked at the strides.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return {
        i
        for i, node in enumerate(placeholders)
        if _is_fixed(node.meta.get("val")) and not node.name.startswith("tangents")
    }


def _is_fixed(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    lengths: list[Any] = [*value.size(), *value.stride()]
    return all(type(length) is int for length in lengths)


def _runner(captured: CapturedGraph) -> Callable[[list[Any]], Any]:
    def run(args: list[Any]) -> Any:
        return captured.run(args)

    return run


def _as_it_is(gm: fx.GraphModule) -> BoxedCallable:
    forward = boxed_copy(gm)

    def run(args: list[Any]) -> Any:
        return forward(args)

    return boxed(run)


def _shared_lanes(graph: str, engine: Engine, device: torch.device) -> Lanes:
    lanes = _lanes.get((graph, device))
    if lanes is None:
        lanes = _lanes[(graph, device)] = lanes_for(engine, device)
    return lanes


def _record_partition(part: Partition) -> None:
    for refused in part.refused:
        refusal = refused.refusal
        record_decision(
            refused.node, "split", refusal.code, f"{refusal.op} {refusal.reason}", source=refused.source
        )
    for name in part.moved:
        record_decision(
            name, "move", "host-scalar", f"a number on the host, copied to {part.device} in each call"
        )
    for island in part.islands:
        graph = cast("fx.GraphModule", part.gm.get_submodule(island)).graph
        nodes = [node.name for node in graph.nodes if node.op == "call_function"]
        record_decision(island, "capture", "island", f"{len(nodes)} operations are replayed", nodes=nodes)
    islands = "1 island" if len(part.islands) == 1 else f"{len(part.islands)} islands"
    record_decision(
        "graph",
        "capture",
        "islands",
        f"{islands} with {part.captured} of {part.operations} operations on {part.device}",
    )


aot_cudagraphs = aot_autograd(
    name="aot_cudagraphs",
    fw_compiler=compile_beginning,
    bw_compiler=compile_backward,
    partition_fn=save_as_eager,
    settings=CaptureSettings,
    tags=("training", "inference", "cuda", "cpu"),
    keep_inference_input_mutations=True,
)
