"""What a captured graph does to its inputs, and whose memory its outputs lie in, with names and source lines.

The graph is run once on fake twins of its inputs. Unlike in `aot_core.aliasing.effects`, the twins share memory as the
inputs do: a write through one of them is a write to all that overlap it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.memory import Geometry, alias_root, geometry_of, has_memory, storage_address
from aot_core.analysis.mutation import find_written_tensors
from aot_core.explaining.explanation import InputExplanation, MetadataChange, OutputExplanation, Write
from aot_core.explaining.memory_overlap import Region, region_of, regions_overlap, same_memory
from aot_core.explaining.tensor_names import TensorNames, name_of_source
from aot_core.interpreter import RuntimeInterpreter
from aot_core.source import source_frames

__all__ = ["CapturedGraph", "explain_captured", "user_line", "what"]

_TORCH = os.path.dirname(torch.__file__)


@dataclasses.dataclass(frozen=True)
class CapturedGraph:
    """What is told of a graph; see `aot_core.GraphExplanation` for the first three.

    Args:
        written: Each region that the graph writes, with the address of its storage.
    """

    inputs: tuple[InputExplanation, ...]
    outputs: tuple[OutputExplanation, ...]
    unknown: str | None
    written: tuple[tuple[int, Region], ...] = ()


def explain_captured(gm: fx.GraphModule, inputs: Sequence[Any], names: TensorNames) -> CapturedGraph:
    """Tell about a graph's inputs and outputs.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        inputs: Its inputs. Only looked at.
        names: Of the tensors that the user can name.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    explained = _inputs_alone(placeholders, inputs, names)
    run = _FakeRun(gm)
    unknown = None
    try:
        outputs = run.on(inputs)
    except Exception as error:
        # Whatever a graph does on fake tensors, it is explained as far as it goes.
        unknown = f"{type(error).__name__}: {error}".partition("\n")[0]
        return CapturedGraph(explained, _unknown_outputs(gm), unknown)
    explained = tuple(
        dataclasses.replace(
            given,
            writes=run.writes_to(i),
            metadata_change=run.metadata_change_of(i, inputs[i]),
        )
        if isinstance(inputs[i], torch.Tensor)
        else given
        for i, given in enumerate(explained)
    )
    return CapturedGraph(explained, run.explain_outputs(outputs, explained), None, run.written_in(inputs))


def user_line(node: fx.Node) -> str | None:
    """Return ``"model.py:41"``: the innermost line of the node's stack trace that is not in torch.

    That of a module's operation is where the user calls the module, or its module's own line where all are torch's.
    """
    frames = source_frames(node)
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    if not frames:
        return None
    file, line = (own or frames)[-1]
    return f"{os.path.basename(file)}:{line}"


def what(value: Any) -> str:
    """Return ``"float32[4, 8]"`` for a tensor, and a number as it is."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return str(_compat.concrete(value))


def _inputs_alone(
    placeholders: list[fx.Node], inputs: Sequence[Any], names: TensorNames
) -> tuple[InputExplanation, ...]:
    """Tell of the inputs what can be told without running the graph."""
    found: list[InputExplanation] = []
    for node, value in zip(placeholders, inputs, strict=True):
        source = name_of_source(_compat.source_of_input(node) or node.name)
        if not isinstance(value, torch.Tensor):
            found.append(InputExplanation(source, "number", what(value)))
            continue
        known = names.names_of(value) or [source]
        found.append(
            InputExplanation(
                name=known[0],
                kind=names.kind_of(value) or _kind_without_name(value, source, names),
                what=what(value),
                requires_grad=value.requires_grad,
                also_named=tuple(known[1:]),
                origin=names.origin_of(value),
            )
        )
    tensors = [(i, x) for i, x in enumerate(inputs) if has_memory(x)]
    regions = {i: region_of(x) for i, x in tensors}
    for i, tensor in tensors:
        shared = [j for j, x in tensors if j != i and same_memory(x, tensor)]
        root = alias_root(tensor)
        base = None
        if root is not tensor:
            passed = next((found[j].name for j, x in tensors if x is root), None)
            base = passed or next(iter(names.names_of(root)), "(unnamed)")
        found[i] = dataclasses.replace(
            found[i],
            base=base,
            shares_memory_with=tuple(found[j].name for j in shared),
            overlaps=tuple(found[j].name for j in shared if regions_overlap(regions[i], regions[j])),
        )
    return tuple(found)


def _kind_without_name(tensor: torch.Tensor, source: str, names: TensorNames) -> str:
    if names.origin_of(tensor) is not None or tensor.grad_fn is not None:
        return "intermediate"
    if isinstance(tensor, torch.nn.Parameter):
        return "parameter"
    # An attribute of an object; a plain local variable was computed between graphs.
    return "captured" if "." in source else "intermediate"


@dataclasses.dataclass(frozen=True)
class _WriteSeen:
    storage: int
    region: Region
    requires_grad: bool
    grad_enabled: bool
    operation: str
    source: str | None


class _FakeRun(RuntimeInterpreter):
    """Runs a graph on fake twins of its inputs, and notes what is written and what memory is made by which node."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self._twins: list[Any] = []
        self._before: list[tuple[Geometry, Region] | None] = []
        self._made: dict[int, tuple[torch.Tensor, str]] = {}
        self._alive: list[Any] = []
        self._writes: list[_WriteSeen] = []
        self._metadata_lines: dict[int, str | None] = {}
        self._line: str | None = None

    def on(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the graph, and return its outputs."""
        mode = _compat.new_fake_mode()
        self._twins = [
            _compat.fake_twin(mode, x) if isinstance(x, torch.Tensor) else _compat.concrete(x) for x in inputs
        ]
        self._before = [(geometry_of(x), region_of(x)) if has_memory(x) else None for x in self._twins]
        with _compat.tracing_under(mode), mode, _WatchWrites(self):
            outputs = self.run(*self._twins)
        return outputs if isinstance(outputs, (tuple, list)) else (outputs,)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, remembering its line and what it makes."""
        self._line = user_line(n)
        value = super().run_node(n)
        for leaf in _compat.pytree.tree_leaves(value):
            if n.op != "output" and has_memory(leaf):
                self._made.setdefault(leaf.untyped_storage()._cdata, (leaf, n.name))
                self._alive.append(leaf)
        for i, twin in enumerate(self._twins):
            before = self._before[i]
            if before is not None and i not in self._metadata_lines and geometry_of(twin) != before[0]:
                self._metadata_lines[i] = self._line
        return value

    def note_write(self, function: Any, tensor: torch.Tensor) -> None:
        """Note that an operator writes a tensor."""
        if has_memory(tensor):
            name = str(getattr(function, "overloadpacket", function))
            self._writes.append(
                _WriteSeen(
                    tensor.untyped_storage()._cdata,
                    region_of(tensor),
                    tensor.requires_grad,
                    torch.is_grad_enabled(),
                    name,
                    self._line,
                )
            )

    def writes_to(self, position: int) -> tuple[Write, ...]:
        """Return what wrote the elements of an input."""
        before = self._before[position]
        if before is None:
            return ()
        twin, region = self._twins[position], before[1]
        found = []
        for seen in self._writes:
            if seen.storage != twin.untyped_storage()._cdata or not regions_overlap(seen.region, region):
                continue
            hidden = not (seen.grad_enabled and (seen.requires_grad or not twin.requires_grad))
            found.append(Write(seen.operation, seen.source, hidden))
        return tuple(dict.fromkeys(found))

    def written_in(self, inputs: Sequence[Any]) -> tuple[tuple[int, Region], ...]:
        """Return the written regions in the memory of the inputs."""
        addresses = {
            twin.untyped_storage()._cdata: storage_address(given)
            for twin, given in zip(self._twins, inputs, strict=True)
            if has_memory(twin)
        }
        written = ((addresses.get(seen.storage), seen.region) for seen in self._writes)
        return tuple(dict.fromkeys((address, region) for address, region in written if address))

    def metadata_change_of(self, position: int, given: torch.Tensor) -> MetadataChange | None:
        """Return how the geometry of an input ends, if it does not stay."""
        before = self._before[position]
        if before is None or geometry_of(self._twins[position]) == before[0]:
            return None
        size, stride, offset = geometry_of(self._twins[position])
        return MetadataChange(size, stride, offset, self._metadata_lines.get(position))

    def explain_outputs(
        self, outputs: Sequence[Any], inputs: Sequence[InputExplanation]
    ) -> tuple[OutputExplanation, ...]:
        """Tell about the outputs."""
        names = _output_names(self.module, len(outputs))  # type: ignore[arg-type]
        return tuple(self._explain_output(i, outputs, names, inputs) for i in range(len(outputs)))

    def _explain_output(
        self, position: int, outputs: Sequence[Any], names: list[str], inputs: Sequence[InputExplanation]
    ) -> OutputExplanation:
        output, name = outputs[position], names[position]
        if not isinstance(output, torch.Tensor):
            return OutputExplanation(name, "none" if output is None else "value", what(output))
        if not has_memory(output):
            return OutputExplanation(name, "unknown", what(output), output.requires_grad)
        storage = output.untyped_storage()._cdata
        beside = tuple(
            names[i]
            for i, other in enumerate(outputs)
            if i != position and has_memory(other) and other.untyped_storage()._cdata == storage
        )
        owners = [
            i for i, x in enumerate(self._twins) if has_memory(x) and x.untyped_storage()._cdata == storage
        ]
        kind, alias_of = "fresh", tuple(inputs[i].name for i in owners)
        itself = [inputs[i].name for i in owners if self._twins[i] is output]
        if itself:
            kind, alias_of = "input", tuple(dict.fromkeys((*itself, *alias_of)))
        elif owners:
            kind = "alias of input"
        elif storage in self._made and self._made[storage][0] is not output:
            first, made_by = self._made[storage]
            if not any(other is first for other in outputs):
                kind, alias_of = "alias of intermediate", (made_by,)
        return OutputExplanation(name, kind, what(output), output.requires_grad, alias_of, beside)


class _WatchWrites(_compat.TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, run: _FakeRun) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Schemas mark what x.t_() does as a write, too.
        only_metadata = torch.Tag.inplace_view in getattr(func, "tags", ())
        # Before the call, for an operator that moves the tensor elsewhere.
        for tensor in [] if only_metadata else find_written_tensors(func, args, kwargs):
            self._run.note_write(func, tensor)
        return func(*args, **kwargs)


def _output_names(gm: fx.GraphModule, count: int) -> list[str]:
    returned: Any = gm.graph.output_node().args[0]
    listed = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    return [node.name if isinstance(node, fx.Node) else f"output {i}" for i, node in enumerate(listed)]


def _unknown_outputs(gm: fx.GraphModule) -> tuple[OutputExplanation, ...]:
    returned: Any = gm.graph.output_node().args[0]
    listed = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    return tuple(OutputExplanation(name, "unknown", "") for name in _output_names(gm, len(listed)))
