"""Putting calls of another compiler's work in the place of regions of a graph.

Before::

    def forward(x, w):
        y = aten.mm.default(x, w)
        a = aten.relu.default(y)            # a region: relu, mul
        b = aten.mul.Tensor(a, 2)
        return b

After::

    def forward(x, w):
        y = aten.mm.default(x, w)
        outputs = aot_ts_fusion.run_fusion.default(0, [y])
        b = outputs[0]
        return b
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from aot_core.protocol import Decision
from aot_ts_fusion import _compat
from aot_ts_fusion.callout import FUSIONS_KEY, RUN_FUSION, Fusion
from aot_ts_fusion.number_ops import NUMBER_OPS

__all__ = ["CompileRegion", "call_out_regions"]

CompileRegion = Callable[
    [fx.GraphModule, Sequence[Any]], Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
]
"""Compiles the graph of a region, given what its inputs look like, to a function of a list of tensors."""


def call_out_regions(
    gm: fx.GraphModule,
    regions: Sequence[Collection[fx.Node]],
    compile_region: CompileRegion,
    *,
    stage: str = "torchscript",
    strict: bool = False,
) -> tuple[fx.GraphModule, list[Decision]]:
    """Return a graph that calls `run_fusion` where the given one has regions.

    Args:
        gm: Graph of ATen operations whose nodes carry ``meta["val"]``. Not changed.
        regions: Nodes that belong together. One of which a path leads out and back in stays as it is.
        compile_region: Makes the function for one region. If it raises, the region stays as it is.
        stage: `Decision.stage` of what is recorded.
        strict: Raise what ``compile_region`` raises.

    Returns:
        The graph, which keeps its fusions alive, and a decision for each region.
    """
    return _CallOut(gm, stage).run(regions, compile_region, strict)


class _CallOut:
    def __init__(self, gm: fx.GraphModule, stage: str) -> None:
        self._gm = gm
        self._stage = stage
        self._position = {node: place for place, node in enumerate(gm.graph.nodes)}
        self._followers = _followers(gm.graph)
        self._region_of: dict[fx.Node, _Region] = {}
        self._decisions: list[Decision] = []

    def run(
        self, regions: Sequence[Collection[fx.Node]], compile_region: CompileRegion, strict: bool
    ) -> tuple[fx.GraphModule, list[Decision]]:
        for number, nodes in enumerate(regions):
            self._compile(nodes, f"region_{number}", compile_region, strict)
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for nodes in self._in_order():
            region = self._region_of.get(nodes[0])
            if region is None:
                copies[nodes[0]] = graph.node_copy(nodes[0], copies.__getitem__)
            else:
                _insert_call(graph, region, copies)
        gm = fx.GraphModule(self._gm, graph)
        fusions = {region.fusion.number: region.fusion for region in self._region_of.values()}
        gm.meta = {**self._gm.meta, FUSIONS_KEY: list(fusions.values())}
        return gm, self._decisions

    def _compile(
        self, nodes: Collection[fx.Node], name: str, compile_region: CompileRegion, strict: bool
    ) -> None:
        # A write is made by the graph: an operator that writes must say so, and run_fusion's schema says that none is.
        computed = [node for node in nodes if not _writes(node)]
        part = _Part(sorted(computed, key=self._position.__getitem__))
        refusal = self._refusal(part)
        if refusal is None:
            try:
                run = compile_region(part.graph_module(self._gm), [_value(node) for node in part.inputs])
            except Exception as error:
                if strict:
                    raise
                refusal = ("region-not-compiled", f"{type(error).__name__}: {error}")
            else:
                region = _Region(part, Fusion(run, len(part.outputs), name))
                self._region_of.update(dict.fromkeys(part.nodes, region))
        code, detail = refusal or ("region", f"{len(part.nodes)} operations are one call")
        fused = () if refusal else tuple(node.name for node in part.nodes)
        action = "skip" if refusal else "fuse"
        self._decisions.append(Decision(self._stage, name, action, code, detail, nodes=fused))

    def _refusal(self, part: _Part) -> tuple[str, str] | None:
        if not part.outputs:
            return "region-without-result", "nothing reads what it computes"
        for node in (*part.inputs, *part.outputs):
            if not isinstance(_value(node), torch.Tensor):
                return (
                    "region-of-numbers",
                    f"{node.name} is no tensor, and a fusion takes and gives tensors only",
                )
        if self._leads_back(part):
            return "region-in-a-cycle", "something must run after one of its nodes and before another"
        return None

    def _unit(self, node: fx.Node) -> Sequence[fx.Node]:
        """Return the nodes that run at once with a node: those of its region, or itself."""
        region = self._region_of.get(node)
        return (node,) if region is None else region.part.nodes

    def _leads_back(self, part: _Part) -> bool:
        inside = set(part.nodes)
        seen: set[fx.Node] = set()
        queue = [later for node in part.nodes for later in self._followers[node] if later not in inside]
        while queue:
            node = queue.pop()
            if node in inside:
                return True
            if node not in seen:
                unit = self._unit(node)
                seen.update(unit)
                queue += [later for each in unit for later in self._followers[each]]
        return False

    def _in_order(self) -> Iterator[Sequence[fx.Node]]:
        """Yield regions and single nodes in an order in which they can run: the original's wherever it is one."""
        waits: collections.Counter[fx.Node] = collections.Counter()
        for node in self._position:
            first = self._unit(node)[0]
            waits.update(
                self._unit(later)[0] for later in self._followers[node] if self._unit(later)[0] is not first
            )
        nodes = list(self._position)
        ready = [
            place for node, place in self._position.items() if self._unit(node)[0] is node and not waits[node]
        ]
        while ready:
            unit = self._unit(nodes[heapq.heappop(ready)])
            yield unit
            for later in [later for node in unit for later in self._followers[node]]:
                first = self._unit(later)[0]
                if first is not unit[0]:
                    waits[first] -= 1
                    if not waits[first]:
                        heapq.heappush(ready, self._position[first])


class _Part:
    """Nodes in order, what they read from outside, and those that are read there."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        inside = set(nodes)
        self.nodes = nodes
        self.inputs = list(
            dict.fromkeys(
                operand for node in nodes for operand in node.all_input_nodes if operand not in inside
            )
        )
        self.outputs = [node for node in nodes if any(user not in inside for user in node.users)]

    def graph_module(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Return the part as a graph of its own: ``part(inputs) -> [outputs]``."""
        graph = fx.Graph()
        inner: dict[fx.Node, fx.Node] = {}
        for node in self.inputs:
            inner[node] = graph.placeholder(node.name)
            inner[node].meta = dict(node.meta)
        for node in self.nodes:
            inner[node] = graph.node_copy(node, inner.__getitem__)
        output = graph.output([inner[node] for node in self.outputs])
        output.meta["val"] = [_value(node) for node in self.outputs]
        return fx.GraphModule(gm, graph, class_name="Region")


@dataclasses.dataclass(frozen=True)
class _Region:
    """A part of the graph that is compiled."""

    part: _Part
    fusion: Fusion


def _insert_call(graph: fx.Graph, region: _Region, copies: dict[fx.Node, fx.Node]) -> None:
    arguments = [copies[node] for node in region.part.inputs]
    call = graph.call_function(RUN_FUSION, (region.fusion.number, arguments))
    for place, node in enumerate(region.part.outputs):
        copies[node] = graph.call_function(operator.getitem, (call, place))
        copies[node].meta = dict(node.meta)


def _followers(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return for each node those that must run after it: its users, and those whose effects come after its own.

    Random numbers are drawn in order. Nothing passes a write, or an operation of which only the effect counts.
    """
    followers: dict[fx.Node, list[fx.Node]] = {node: list(node.users) for node in graph.nodes}
    since_barrier: list[fx.Node] = []
    last_draw: fx.Node | None = None
    for node in graph.nodes:
        if since_barrier and _is_barrier(since_barrier[0]):
            followers[since_barrier[0]].append(node)
        if _is_barrier(node):
            for earlier in since_barrier:
                followers[earlier].append(node)
            since_barrier = []
        elif _draws(node):
            if last_draw is not None:
                followers[last_draw].append(node)
            last_draw = node
        since_barrier.append(node)
    return followers


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")


def _signature(node: fx.Node) -> _compat.Signature | None:
    return _compat.signature(node.target) if _compat.is_operator(node.target) else None


def _writes(node: fx.Node) -> bool:
    signature = _signature(node)
    return signature is not None and signature.writes


def _draws(node: fx.Node) -> bool:
    signature = _signature(node)
    return signature is not None and signature.draws


def _is_barrier(node: fx.Node) -> bool:
    if node.op == "output" or _writes(node):
        return True
    signature = _signature(node)
    if signature is not None:
        return not signature.returns
    return node.op in ("call_module", "call_method") or (
        node.op == "call_function" and node.target is not operator.getitem and node.target not in NUMBER_OPS
    )
