"""Cutting a graph into TorchScript functions and, for what can't be expressed there, FX partitions.

::

    def forward(a):                                    TorchScript: info, factor = linalg_cholesky_ex(a)
        factor, info = linalg_cholesky_ex(a)
        _linalg_check_errors(info, "cholesky")    →    FX:          _linalg_check_errors(info, "cholesky")
        b = factor * 2
        return b                                       TorchScript: b = factor * 2

The order of operations is kept, so that checks fire, random numbers are drawn and writes are made when eager does it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import boxed_code, source_line
from aot_core.protocol import Decision
from aot_ts_fusion import _compat
from aot_ts_fusion._compat import IRType
from aot_ts_fusion.callout import fusions_called
from aot_ts_fusion.obstacle import Obstacle
from aot_ts_fusion.program import Program, Step
from aot_ts_fusion.script_function import ScriptFunction
from aot_ts_fusion.segment import Segment, type_of

__all__ = ["compile_program"]


def compile_program(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, fuser: str | None, name: str, stage: str
) -> Program:
    """Compile a graph of ATen operations.

    Args:
        gm: The graph. Not changed.
        example_inputs: What its inputs look like; only their kinds count.
        fuser: TorchScript's fuser, or None.
        name: What to call the TorchScript functions.
        stage: `Decision.stage` of what is recorded.
    """
    return _Cut(gm, example_inputs, fuser=fuser, name=name, stage=stage).program()


class _Cut:
    def __init__(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], *, fuser: str | None, name: str, stage: str
    ) -> None:
        self._gm = gm
        self._fuser = fuser
        self._name = name
        self._stage = stage
        self._types: dict[fx.Node, IRType] = {}
        self._slot_of: dict[fx.Node, int] = {}
        self._attributes: list[tuple[int, Callable[[], Any]]] = []
        self._steps: list[Step] = []
        self._decisions: list[Decision] = []
        # Of the two, one at most is under way.
        self._segment: Segment | None = None
        self._partition: dict[fx.Node, None] = {}
        placeholders = gm.graph.find_nodes(op="placeholder")
        self._num_inputs = len(placeholders)
        for node, example in zip(placeholders, example_inputs, strict=True):
            self._place(node, type_of(example))

    def program(self) -> Program:
        done: set[fx.Node] = set()
        for node in self._gm.graph.nodes:
            if node.op in ("placeholder", "output") or node in done:
                continue
            if node.op == "get_attr":
                self._attribute(node)
                continue
            if not self._lower(node):
                # Elements of what it returns are taken where it runs.
                elements = [user for user in node.users if user.target is operator.getitem]
                done.update(elements)
                self._run_in_fx(node, *elements)
        self._close_segment()
        self._close_partition()
        return Program(
            self._slot_of,
            self._num_inputs,
            self._attributes,
            self._steps,
            self._gm.graph.output_node().args[0],
            decisions=self._decisions,
            keeps=fusions_called(self._gm.graph),
            fuser=self._fuser,
        )

    def _place(self, node: fx.Node, kind: IRType | None) -> None:
        self._slot_of[node] = len(self._slot_of)
        if kind is not None:
            self._types[node] = kind

    def _attribute(self, node: fx.Node) -> None:
        value = _attribute_of(self._gm, str(node.target))
        if isinstance(value, torch.nn.Module):
            return  # what a higher-order operator calls
        self._place(node, type_of(value))
        self._attributes.append(
            (self._slot_of[node], functools.partial(_attribute_of, self._gm, str(node.target)))
        )

    def _lower(self, node: fx.Node) -> bool:
        segment = self._segment or Segment(self._types, optimized=self._fuser is not None)
        try:
            segment.lower(node)
        except Obstacle as obstacle:
            self._decisions.append(
                Decision(
                    self._stage,
                    node.name,
                    "split",
                    obstacle.code,
                    f"{_name(node)} runs in FX: {obstacle.reason}",
                    source_line(node),
                )
            )
            return False
        if self._segment is None:
            self._close_partition()
            self._segment = segment
        return True

    def _run_in_fx(self, *nodes: fx.Node) -> None:
        self._close_segment()
        self._partition.update(dict.fromkeys(nodes))
        for node in nodes:
            kind = type_of(node.meta.get("val")) or _returned_type(node)
            if kind is not None:
                self._types[node] = kind

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        tensors, numbers, returned = segment.finish()
        function = ScriptFunction(
            segment.graph,
            name=f"{self._name}_{len(self._steps)}",
            literals=segment.literals,
            takes_tensors=bool(tensors),
            fuser=self._fuser,
        )
        self._add_step(function, tensors, numbers, returned, len(segment.nodes), function)

    def _close_partition(self) -> None:
        nodes, self._partition = self._partition, {}
        if not nodes:
            return
        read = dict.fromkeys(
            operand for node in nodes for operand in node.all_input_nodes if operand not in nodes
        )
        taken = [node for node in read if not _is_module(self._gm, node)]
        returned = [node for node in nodes if any(user not in nodes for user in node.users)]
        forward = boxed_code(_partition(self._gm, list(nodes), taken, returned))

        def run(tensors: list[Any], others: list[Any]) -> Any:
            return forward(tensors)

        self._add_step(run, taken, [], returned, len(nodes), None)

    def _add_step(
        self,
        run: Callable[[list[Any], list[Any]], Sequence[Any]],
        tensors: Sequence[fx.Node],
        others: Sequence[fx.Node],
        returned: Sequence[fx.Node],
        operations: int,
        function: ScriptFunction | None,
    ) -> None:
        for node in returned:
            self._place(node, self._types.get(node))
        self._steps.append(
            Step(
                run,
                tensors=[self._slot_of[node] for node in tensors],
                others=[self._slot_of[node] for node in others],
                written=[self._slot_of[node] for node in returned],
                operations=operations,
                function=function,
            )
        )


def _returned_type(node: fx.Node) -> IRType | None:
    """Return the type that an operator's schema promises, for a node without a traced value."""
    returns = _compat.signature(node.target).returns if _compat.is_operator(node.target) else ()
    return returns[0] if len(returns) == 1 and returns[0].kind() == "TensorType" else None


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", "") if callable(node.target) else str(node.target)


def _attribute_of(gm: fx.GraphModule, path: str) -> Any:
    return operator.attrgetter(path)(gm)


def _is_module(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "get_attr" and isinstance(_attribute_of(gm, str(node.target)), torch.nn.Module)


def _partition(
    gm: fx.GraphModule, nodes: Sequence[fx.Node], taken: Sequence[fx.Node], returned: Sequence[fx.Node]
) -> fx.GraphModule:
    """Return a graph of some nodes alone."""
    graph = fx.Graph()
    inner: dict[fx.Node, fx.Node] = {}
    for node in taken:
        inner[node] = graph.placeholder(node.name)
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in inner:
                inner[operand] = graph.node_copy(operand)
        inner[node] = graph.node_copy(node, inner.__getitem__)
    graph.output(tuple(inner[node] for node in returned))
    return fx.GraphModule(gm, graph, class_name="Partition")
