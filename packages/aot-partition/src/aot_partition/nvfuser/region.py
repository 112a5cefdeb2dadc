"""A compiled region: from its inputs to the fusion that fits them.

What a call costs beyond nvFuser's own is one dictionary look-up by the sizes and strides of the inputs. Sizes and
strides that were not seen before are looked at once: their layout tells which definition is right for them.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

import aot_core
from aot_partition import _compat
from aot_partition.nvfuser.emitter import Drawings
from aot_partition.nvfuser.engine import Fusion, FusionCache
from aot_partition.nvfuser.layouts import Layout, layout_class, memory_order
from aot_partition.nvfuser.outputs import plan_outputs, run_views
from aot_partition.nvfuser.translate import Translation, translate

__all__ = ["CompiledRegion", "compile_region"]

MAX_GEOMETRIES = 1024
"""For how many combinations of sizes and strides a region remembers what to do."""

DrawSeed = Callable[[torch.device, int], tuple[int, int]]
"""Takes a device and how far to move on its generator; returns the seed and the offset to draw from."""


@dataclasses.dataclass(frozen=True)
class _Way:
    """How to run a region for inputs of some sizes and strides.

    Args:
        fusion: What to call; None to run ATen.
        strides: Strides that outputs must have and nvFuser does not give them, by place.
    """

    fusion: Fusion | None
    strides: tuple[tuple[int, tuple[int, ...]], ...] | None = None


def compile_region(subgraph: fx.GraphModule, cache: FusionCache, draw_seed: DrawSeed) -> CompiledRegion:
    """Translate a region and build its fusion.

    Args:
        subgraph: ``region(inputs) -> [outputs]``, of claimed nodes alone. Not changed.
        cache: Where fusions come from.
        draw_seed: Where random numbers come from.

    Raises:
        Exception: any that a rule or nvFuser raises.
    """
    return CompiledRegion(subgraph, cache, draw_seed)


class CompiledRegion:
    """Runs a region: takes a list of its inputs, and returns its outputs."""

    def __init__(self, subgraph: fx.GraphModule, cache: FusionCache, draw_seed: DrawSeed) -> None:
        self._subgraph = subgraph
        self._cache = cache
        self._draw_seed = draw_seed
        self._inputs = [node for node in subgraph.graph.nodes if node.op in ("placeholder", "get_attr")]
        returned: Any = subgraph.graph.output_node().args[0]
        self._outputs = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        calls = [node for node in subgraph.graph.nodes if node.op == "call_function"]
        self._plan = plan_outputs(calls, [node for node in self._outputs if isinstance(node, fx.Node)])
        self._tensors = [
            i for i, node in enumerate(self._inputs) if isinstance(node.meta["val"], torch.Tensor)
        ]
        self._ways: dict[Any, _Way] = {}
        self._lock = threading.Lock()
        self._direct = not self._plan.views and list(self._plan.computed) == self._outputs
        self.translation: Translation | None = None
        if self._plan.needed:
            # Built now for the layouts that were traced, so that what fails does so while compiling.
            self.translation = self._translated(None)
            self._cache.get(self.translation.definition)

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        """Run it."""
        geometry = tuple(
            [(tensor.shape, tensor.stride()) for tensor in map(inputs.__getitem__, self._tensors)]
        )
        way = self._ways.get(geometry)
        if way is None or way.strides is None:
            return self._first_call(geometry, inputs)
        if way.fusion is None:
            return self._by_aten(list(inputs))
        made = way.fusion(self._seeded(inputs))
        if way.strides:
            made = _restrided(made, way.strides)
        return made if self._direct else self._assembled(inputs, made)

    # --- what is not seen every time --------------------------------------------------------------------------

    def _first_call(self, geometry: Any, inputs: list[Any]) -> Sequence[Any]:
        tensors = [inputs[i] for i in self._tensors]
        layouts = [layout_class(tensor) for tensor in tensors]
        if not self._plan.needed or any(each is None for each in layouts):
            # No element: no kernel may be launched (NVIDIA/Fuser#2545). Nothing to compute: views alone.
            self._remember(geometry, _Way(None, ()))
            return self._by_aten(list(inputs))
        translation = self._translated([each for each in layouts if each is not None])
        fusion = self._cache.get(translation.definition)
        made = fusion(self._seeded(inputs))
        strides = tuple(
            (place, wanted)
            for place, (node, tensor) in enumerate(zip(self._plan.computed, made, strict=True))
            if (wanted := _wanted_strides(node, tensor)) is not None
        )
        self._remember(geometry, _Way(fusion, strides))
        made = _restrided(made, strides) if strides else made
        return made if self._direct else self._assembled(inputs, made)

    def _remember(self, geometry: Any, way: _Way) -> None:
        with self._lock:
            if len(self._ways) >= MAX_GEOMETRIES:
                self._ways.clear()
            self._ways[geometry] = way

    def _translated(self, layouts: Sequence[Layout] | None) -> Translation:
        return translate(self._inputs, self._plan.needed, self._plan.computed, layouts)

    def _seeded(self, inputs: list[Any]) -> list[Any]:
        count = 0 if self.translation is None else self.translation.drawings
        if not count:
            return inputs
        device = self._plan.needed[-1].meta["val"]
        seed, offset = self._draw_seed(_device_of(device), Drawings.STRIDE * count)
        return [*inputs, seed, offset]

    def _assembled(self, inputs: list[Any], made: Sequence[Any]) -> list[Any]:
        values = dict(zip(self._inputs, inputs, strict=True))
        values.update(zip(self._plan.computed, made, strict=True))
        run_views(self._plan.views, values)
        return [values[node] if isinstance(node, fx.Node) else node for node in self._outputs]

    @functools.cached_property
    def _by_aten(self) -> Callable[[list[Any]], Sequence[Any]]:
        copy = _compat.make_graph_module(self._subgraph, fx.Graph.__deepcopy__(self._subgraph.graph))
        code: Callable[[list[Any]], Sequence[Any]] = aot_core.boxed_code(copy)
        return code


def _device_of(value: Any) -> torch.device:
    tensor: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
    return tensor.device


def _wanted_strides(node: fx.Node, tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides that a result must have, or None if it has them."""
    fake = node.meta["val"]
    wanted = [0] * tensor.dim()
    step = 1
    for i in reversed(memory_order(fake.shape, fake.stride())):
        wanted[i] = step
        step *= tensor.shape[i]
    same = all(
        size == 1 or got == want
        for size, got, want in zip(tensor.shape, tensor.stride(), wanted, strict=True)
    )
    return None if same else tuple(wanted)


def _restrided(made: Sequence[Any], strides: Sequence[tuple[int, tuple[int, ...]]]) -> list[Any]:
    outputs = list(made)
    for place, wanted in strides:
        tensor = outputs[place]
        laid = torch.empty_strided(tensor.shape, wanted, dtype=tensor.dtype, device=tensor.device)
        outputs[place] = laid.copy_(tensor)
    return outputs
