"""A backend that compiles as another does, and tells what goes through its stages.

The compilers and the partitioner are the other's own. Each looks at its graphs first::

    captured graph ──> inputs, outputs
    partition      ──> joint, forward and backward graph, tangents, saved values
    inference      ──> inference graph
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.memory import has_memory, storage_address
from aot_core.aliasing.signature import read_signature
from aot_core.backend import Backend
from aot_core.compilation import Compilation, current_compilation
from aot_core.explaining.captured_graph import CapturedGraph, explain_captured, user_line, what
from aot_core.explaining.explanation import (
    GraphExplanation,
    InputExplanation,
    NodeExplanation,
    OutputExplanation,
    SavedValue,
    StageExplanation,
    StepAnalysis,
    Tangent,
)
from aot_core.explaining.memory_overlap import Region, regions_overlap
from aot_core.explaining.tensor_names import TensorNames
from aot_core.protocol import CompileReport
from aot_core.stages import Toolchain

__all__ = ["ExplainedBackend"]


@dataclasses.dataclass
class _Record:
    """What is known of one graph so far."""

    report: CompileReport
    captured: CapturedGraph
    merged: list[list[InputExplanation]]
    stages: list[StageExplanation] = dataclasses.field(default_factory=list)
    tangents: list[Tangent] = dataclasses.field(default_factory=list)
    saved: list[SavedValue] = dataclasses.field(default_factory=list)
    analyses: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    error: str | None = None

    @property
    def mode(self) -> str:
        stages = {stage.stage for stage in self.stages}
        return "training" if "backward" in stages else "inference" if stages else "uncompiled"

    def explain(self) -> GraphExplanation:
        return GraphExplanation(
            name=self.report.graph,
            status=self.report.status,
            mode=self.mode,
            error=self.error,
            inputs=self.captured.inputs,
            outputs=self.captured.outputs,
            tangents=tuple(self.tangents),
            saved=tuple(self.saved),
            stages=tuple(self.stages),
            decisions=tuple(self.report.decisions),
            unknown=self.captured.unknown,
            analyses=self.analyses,
        )


class ExplainedBackend(Backend):
    """A backend to explain another one with. Made for one call of one function.

    Where the other fails, the graph runs as it is, so that what comes after it is explained as well.

    Args:
        backend: The other backend.
        names: Names of the tensors that may reach a graph; the outputs of each graph are added.
        analyses: Called with the forward and the backward of each graph.
    """

    _records: dict[str, _Record]
    _names: TensorNames
    _compilations: list[Compilation]
    _returned: dict[int, tuple[Any, OutputExplanation, str]]

    def __init__(self, backend: Backend, names: TensorNames, analyses: Mapping[str, StepAnalysis]) -> None:
        super().__init__(
            backend.name,
            self._observing(backend._tools, analyses),
            settings_type=backend.settings_type,
            tags=backend.tags,
            modes=backend.modes,
        )
        self.__dict__.update(_records={}, _names=names, _compilations=[], _returned={})

    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph and keep what is to be told about it; see `Backend.__call__`."""
        captured = explain_captured(gm, example_inputs, self._names)
        self.__dict__["_pending"] = (captured, _groups_that_merge(captured, example_inputs))
        try:
            compiled = super().__call__(gm, example_inputs, mode, options)
        except Exception as error:
            compilation = self._compilations[-1] if self._compilations else None
            if _compat.is_control_flow(error) or compilation is None:
                if compilation is not None:
                    self._records.pop(compilation.graph, None)
                raise
            record = self._records[compilation.graph]
            record.error = f"{type(error).__name__}: {error}"
            compiled = _compat.keep_dynamo_out(gm.forward, reason="this graph can't be compiled")
        return self._noting_outputs(compiled, captured, self._compilations[-1].graph)

    def explain_graphs(self) -> tuple[GraphExplanation, ...]:
        """Return what was found out about each graph, in the order of compilation."""
        return tuple(record.explain() for record in self._records.values())

    def writes_into(self, tensor: torch.Tensor, region: Region) -> bool:
        """Tell whether a graph writes a region of a tensor's memory, through whatever input."""
        address = storage_address(tensor)
        return any(
            address == written and regions_overlap(region, other)
            for record in self._records.values()
            for written, other in record.captured.written
        )

    def explain_result(self, leaf: Any) -> OutputExplanation | None:
        """Tell about a leaf of the function's result; None if no graph has returned this very object."""
        found = self._returned.get(id(leaf))
        return None if found is None else found[1]

    def share_memory(self, one: Any, other: Any) -> bool | None:
        """Tell whether two leaves are outputs of one graph in one storage; None unless one graph has returned both."""
        if id(one) not in self._returned or id(other) not in self._returned:
            return None
        (_, first, graph), (_, second, other_graph) = self._returned[id(one)], self._returned[id(other)]
        return None if graph != other_graph else one is other or second.name in first.shares_memory_with

    def _new_compilation(
        self, mode: str | None, options: Mapping[str, Any] | None, num_inputs: int
    ) -> Compilation:
        compilation = super()._new_compilation(mode, options, num_inputs)
        captured, merged = self.__dict__["_pending"]
        self._compilations.append(compilation)
        self._records[compilation.graph] = _Record(compilation.report, captured, merged)
        return compilation

    def _observing(self, tools: Toolchain, analyses: Mapping[str, StepAnalysis]) -> Toolchain:
        def compiler(stage: str, compile_graph: Any) -> Any:
            @functools.wraps(compile_graph)
            def observed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
                record = self._records[current_compilation().graph]
                record.stages.append(_stage(stage, gm))
                return compile_graph(gm, example_inputs)

            return observed

        # The wrapper keeps the signature: it tells which arguments a partitioner takes.
        @functools.wraps(tools.partition_fn)
        def partition(
            joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            record = self._records[current_compilation().graph]
            record.stages.append(_stage("joint", joint))
            record.tangents = _tangents(joint, record)
            parts = tools.partition_fn(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
            if isinstance(parts, tuple) and len(parts) == 2:
                record.saved = _saved(parts[0], num_fwd_outputs, record)
                record.analyses = {
                    name: _analysed(analysis, *parts, num_fwd_outputs) for name, analysis in analyses.items()
                }
            return parts

        return dataclasses.replace(
            tools,
            fw_compiler=compiler("forward", tools.fw_compiler),
            bw_compiler=compiler("backward", tools.bw_compiler),
            inference_compiler=compiler("inference", tools.inference_compiler),
            partition_fn=partition,
        )

    def _noting_outputs(
        self, compiled: Callable[..., Any], captured: CapturedGraph, graph: str
    ) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            outputs = compiled(*inputs)
            for position, (output, explained) in enumerate(zip(outputs, captured.outputs, strict=True)):
                if isinstance(output, torch.Tensor) and self._names.kind_of(output) is None:
                    self._returned[id(output)] = (output, self._traced_back(explained, captured), graph)
                    self._names.add_origin(output, f"output {position} of graph {graph}")
            return outputs

        return _compat.keep_dynamo_out(run, reason="a compiled graph is not traced")

    def _traced_back(self, output: OutputExplanation, captured: CapturedGraph) -> OutputExplanation:
        """Tell of an output of a later graph what it is in terms of what the function was given."""
        given = {entry.name: entry for entry in captured.inputs}
        origins = [given[name].origin for name in output.alias_of if name in given]
        if output.kind not in ("input", "alias of input") or not any(origins):
            return output
        earlier = [
            explained
            for tensor, explained, _ in self._returned.values()
            if self._names.origin_of(tensor) in origins
        ]
        kinds = {explained.kind for explained in earlier}
        names = {name: None for explained in earlier for name in explained.alias_of}
        kind = "alias of input" if kinds & {"input", "alias of input"} else "alias of intermediate"
        if kind == "alias of intermediate":
            names = dict.fromkeys(names or output.alias_of)
        return dataclasses.replace(output, kind=kind, alias_of=tuple(names))


def _groups_that_merge(captured: CapturedGraph, inputs: Sequence[Any]) -> list[list[InputExplanation]]:
    """Return which inputs stand behind each input of the graph that AOTAutograd gets.

    The wrapper replaces aliased inputs by one base, at the place of the first.
    """
    changed: Set[int] = {i for i, given in enumerate(captured.inputs) if given.changed}
    if captured.unknown is not None:
        changed = set(range(len(inputs)))
    watched = [i for i, x in enumerate(inputs) if has_memory(x)]
    groups = read_signature(inputs, watched, changed & set(watched))
    first_of = {i: group.positions[0] for group in groups for i in group.positions}
    merged: dict[int, list[InputExplanation]] = {}
    for i, given in enumerate(captured.inputs):
        merged.setdefault(first_of.get(i, i), []).append(given)
    return list(merged.values())


def _analysed(
    analysis: StepAnalysis, forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int
) -> dict[str, Any]:
    try:
        return analysis(forward, backward, num_fwd_outputs).to_dict()
    except Exception as error:
        # Somebody else's code, without which the rest can be told all the same.
        return {"error": f"{type(error).__name__}: {error}"}


def _stage(stage: str, gm: fx.GraphModule) -> StageExplanation:
    returned = gm.graph.output_node().all_input_nodes
    nodes = tuple(
        NodeExplanation(
            node.name,
            _operation(node) or str(node.target),
            _result_bytes(node.meta.get("val")),
            tuple(argument.name for argument in node.all_input_nodes),
            user_line(node),
        )
        for node in gm.graph.nodes
        if node.op not in ("placeholder", "get_attr", "output")
    )
    return StageExplanation(stage, _operations(gm), nodes, tuple(node.name for node in returned))


def _operations(gm: fx.GraphModule) -> dict[str, int]:
    names = (str(node.target) for node in gm.graph.nodes if _computes(node))
    return dict(collections.Counter(names).most_common())


def _computes(node: fx.Node) -> bool:
    # Taking a tuple apart is no operation.
    return node.op == "call_function" and node.target is not operator.getitem


def _operation(node: fx.Node) -> str:
    """Return the operator that computes a node: for a part of a tuple, the one that computes the tuple."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return str(node.target) if node.op == "call_function" else ""


def _tangents(joint: fx.GraphModule, record: _Record) -> list[Tangent]:
    found = []
    for node in joint.graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("tangents"):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                found.append(Tangent(node.name, _of(node, record), what(value), _bytes(value)))
    return found


def _of(node: fx.Node, record: _Record) -> str:
    """Tell what a tangent is the gradient of, from the note that AOTAutograd left on it."""
    output = getattr(node.meta.get("desc"), "output", None)
    written = getattr(getattr(output, "mutated_input", None), "idx", None)
    if written is not None and written < len(record.merged):
        return f"input {_joined(record.merged[written])}"
    index = getattr(output, "idx", None)
    if index is not None and index < len(record.captured.outputs):
        return f"output {record.captured.outputs[index].name}"
    return "" if output is None else type(output).__name__


def _saved(forward: fx.GraphModule, num_fwd_outputs: int, record: _Record) -> list[SavedValue]:
    placeholders = [node for node in forward.graph.nodes if node.op == "placeholder"]
    matched = len(placeholders) == len(record.merged)
    owners: dict[int, tuple[str, str]] = {}
    numbers: dict[fx.Node, str] = {}
    for i, node in enumerate(placeholders):
        group = record.merged[i] if matched else []
        name, kind = (_joined(group), group[0].kind) if group else (node.name, "input")
        storage = _storage(node.meta.get("val"))
        numbers[node] = name
        if storage is not None:
            owners[storage] = (name, kind)
    returned: Any = forward.graph.output_node().args[0]
    counted: set[int] = set()
    found = []
    for node in returned[num_fwd_outputs:]:
        if not isinstance(node, fx.Node):
            continue
        value: Any = node.meta.get("val")
        storage = _storage(value)
        if storage is None:
            kind = "number" if not isinstance(value, torch.Tensor) else "activation"
            size = _bytes(value) if isinstance(value, torch.Tensor) else 0
            of = numbers.get(node)
        else:
            of, kind = owners.get(storage, (None, "activation"))
            size = 0 if storage in counted else _storage_bytes(value)
            counted.add(storage)
        found.append(SavedValue(node.name, kind, what(value), size, of, _operation(node), user_line(node)))
    return found


def _joined(group: list[InputExplanation]) -> str:
    return ", ".join(given.name for given in group)


def _storage(value: Any) -> int | None:
    return value.untyped_storage()._cdata if has_memory(value) else None


def _storage_bytes(value: torch.Tensor) -> int:
    return int(_compat.concrete(value.untyped_storage().nbytes()))


def _result_bytes(value: Any) -> int:
    leaves = _compat.pytree.tree_leaves(value)
    return sum(_bytes(leaf) for leaf in leaves if has_memory(leaf))


def _bytes(value: torch.Tensor) -> int:
    return int(_compat.concrete(value.numel())) * value.element_size()
