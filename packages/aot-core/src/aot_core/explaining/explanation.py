"""What `aot_core.explain` tells, as plain data. Importing this module never imports torch.

::

    Explanation                    one call of a function
      ├─ OutputExplanation         what it returned
      ├─ GraphBreak                where Dynamo gave up, and why
      └─ GraphExplanation          one graph that Dynamo captured
           ├─ InputExplanation     what it gets, and what it does to it (Write)
           ├─ OutputExplanation    what it returns, and whose memory that is
           ├─ Tangent              what its backward gets
           ├─ SavedValue           what its forward keeps for its backward
           ├─ StageExplanation     what each compiled graph consists of (NodeExplanation)
           ├─ analyses             what others found in its forward and backward (StepAnalysis)
           └─ Decision             what the backend decided, fallbacks among them
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aot_core.protocol import Decision

if TYPE_CHECKING:
    from torch import fx

__all__ = [
    "Explanation",
    "GraphBreak",
    "GraphExplanation",
    "InputExplanation",
    "MetadataChange",
    "NodeExplanation",
    "OutputExplanation",
    "SavedValue",
    "StageExplanation",
    "StepAnalysis",
    "Tangent",
    "Write",
]


@dataclasses.dataclass(frozen=True)
class Write:
    """One operation that writes elements of an input.

    Args:
        operation: Name of the operator, as in ``"aten.mul_"``.
        source: The user's source line, ``"file.py:41"``, where known.
        hidden: Autograd does not see it: it happens under ``no_grad``, or through a detached alias.
    """

    operation: str
    source: str | None = None
    hidden: bool = False


@dataclasses.dataclass(frozen=True)
class MetadataChange:
    """What an input's size, strides and storage offset are afterwards, the last two in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    source: str | None = None


@dataclasses.dataclass(frozen=True)
class InputExplanation:
    """One input of a graph.

    Args:
        name: As the user would write it: ``"layers.0.weight"``, ``"x"``, ``"batch['mask']"``.
        kind: ``"parameter"``, ``"buffer"``, ``"argument"``, ``"captured"`` (a tensor from a closure, a global or
            an attribute), ``"intermediate"`` (made by an earlier graph, or between graphs) or ``"number"``.
        what: Dtype and size, ``"float32[4, 8]"``; for a number, the number.
        requires_grad: It requires a gradient.
        also_named: Further names of this very tensor: it is passed several times, or tied.
        base: Name of the tensor that it is a view of; ``"(unnamed)"`` for one that can't be reached by a name.
        shares_memory_with: Names of the other inputs in the same storage.
        overlaps: Those of them that have an element in common with it.
        writes: What writes its elements, in order.
        metadata_change: What its size, strides and offset become, if they change.
        origin: For an intermediate, ``"output 1 of graph 0"`` where it comes from a graph.
    """

    name: str
    kind: str
    what: str
    requires_grad: bool = False
    also_named: tuple[str, ...] = ()
    base: str | None = None
    shares_memory_with: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()
    metadata_change: MetadataChange | None = None
    origin: str | None = None

    @property
    def changed(self) -> bool:
        """Whether anything about it changes."""
        return bool(self.writes) or self.metadata_change is not None


@dataclasses.dataclass(frozen=True)
class OutputExplanation:
    """One output of a graph, or one leaf of what the function returned.

    Args:
        name: Name of the node in the graph; or the place in the result, ``"result[0]['loss']"``.
        kind: ``"input"`` (an input itself), ``"alias of input"``, ``"alias of intermediate"`` (a view of a value
            that is not returned), ``"fresh"`` (memory of its own), ``"none"``, ``"value"`` (no tensor), or
            ``"unknown"``.
        what: Dtype and size, ``"float32[4, 8]"``.
        requires_grad: It requires a gradient.
        alias_of: Names of the inputs in whose storage it lies, that of an input itself first; or of the intermediate.
        shares_memory_with: Names of the other outputs in the same storage.
    """

    name: str
    kind: str
    what: str
    requires_grad: bool = False
    alias_of: tuple[str, ...] = ()
    shares_memory_with: tuple[str, ...] = ()

    @property
    def memory_of(self) -> tuple[str, ...]:
        """Names of the inputs in whose storage it lies."""
        return self.alias_of if self.kind in ("input", "alias of input") else ()


@dataclasses.dataclass(frozen=True)
class Tangent:
    """A gradient that the backward gets.

    Args:
        name: Name of the node in the joint graph.
        of: What it is the gradient of: an output of the graph, or an input that the graph writes.
        what: Dtype and size.
        bytes: Size in bytes.
    """

    name: str
    of: str
    what: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class SavedValue:
    """A value that the forward keeps for the backward.

    Args:
        name: Name of the node in the forward graph.
        kind: ``"activation"``; or ``"parameter"``, ``"buffer"``, ``"argument"``, … for an input or a view of one,
            which costs no memory of its own; or ``"number"``.
        of: Name of the input that it lies in, for all but activations.
        what: Dtype and size.
        bytes: Bytes of its storage; 0 where an earlier value of the list lies in the same one.
        operation: Operator that computes it.
        source: The user's source line, where known.
    """

    name: str
    kind: str
    what: str
    bytes: int
    of: str | None = None
    operation: str = ""
    source: str | None = None


@dataclasses.dataclass(frozen=True)
class NodeExplanation:
    """One operation of a graph.

    Args:
        name: Its name in the graph. A backward that computes a node of the forward again keeps the name.
        operation: Operator that it calls; for a part of a tuple, the one that computes the tuple.
        bytes: Size of its result in bytes, though it be a view.
        reads: Names of the nodes that it reads, inputs of the graph among them.
        source: The user's source line, where known.
    """

    name: str
    operation: str
    bytes: int = 0
    reads: tuple[str, ...] = ()
    source: str | None = None


@dataclasses.dataclass(frozen=True)
class StageExplanation:
    """One graph that AOTAutograd made.

    Args:
        stage: ``"joint"``, ``"forward"``, ``"backward"`` or ``"inference"``.
        operations: Operator → how often it occurs, most frequent first.
        nodes: In the order in which they run, parts of tuples among them.
        returns: Names of the nodes that it returns.
    """

    stage: str
    operations: dict[str, int]
    nodes: tuple[NodeExplanation, ...] = ()
    returns: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many operations there are."""
        return sum(self.operations.values())


class StepAnalysis(Protocol):
    """Finds something out about one training step: what its memory does, say.

    Called with the two graphs that the backend's partitioner made, each node with ``meta["val"]``, and how many of the
    forward's outputs are the user's; the others wait for the backward. The graphs are not to be changed. The result's
    ``to_dict()`` is JSON-ready.
    """

    def __call__(
        self, forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int, /
    ) -> HasPlainData: ...


class HasPlainData(Protocol):
    """What a `StepAnalysis` returns."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class GraphBreak:
    """A place where Dynamo ended a graph although the function went on.

    Args:
        reason: Why, in Dynamo's words.
        source: The user's source line, where known.
    """

    reason: str
    source: str | None = None


@dataclasses.dataclass(frozen=True)
class GraphExplanation:
    """One graph that Dynamo captured, and what the backend made of it.

    Args:
        name: As in reports and errors.
        status: ``"ok"``, ``"fallback"`` (it runs as it is) or ``"failed"``.
        mode: ``"training"``, ``"inference"``, or ``"uncompiled"`` where nothing was compiled.
        error: The backend's error, when failed.
        inputs: In the graph's order.
        outputs: In the graph's order.
        tangents: Of the backward.
        saved: In the forward's order.
        stages: In the order of compilation; those of a second variant come after those of the first.
        decisions: In the order in which they were taken.
        unknown: Why it can't be told what the graph does to its inputs, or None.
        analyses: What the analyses given to `explain_with` found, by their names. ``{"error": …}`` of one that failed.
    """

    name: str
    status: str
    mode: str
    error: str | None = None
    inputs: tuple[InputExplanation, ...] = ()
    outputs: tuple[OutputExplanation, ...] = ()
    tangents: tuple[Tangent, ...] = ()
    saved: tuple[SavedValue, ...] = ()
    stages: tuple[StageExplanation, ...] = ()
    decisions: tuple[Decision, ...] = ()
    unknown: str | None = None
    analyses: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def recomputed(self) -> tuple[NodeExplanation, ...]:
        """The operations of the forward that the backward computes again, in its order."""
        nodes = {stage.stage: stage.nodes for stage in self.stages}
        made = {node.name for node in nodes.get("forward", ())}
        return tuple(node for node in nodes.get("backward", ()) if node.name in made)

    @property
    def activation_bytes(self) -> int:
        """Bytes that live from forward to backward and would not otherwise."""
        return sum(value.bytes for value in self.saved if value.kind == "activation")

    @property
    def saved_input_bytes(self) -> int:
        """Bytes of parameters, buffers and other inputs that the backward needs as well."""
        return sum(value.bytes for value in self.saved if value.kind not in ("activation", "number"))

    @property
    def fallbacks(self) -> tuple[Decision, ...]:
        """The decisions not to compile something."""
        return tuple(decision for decision in self.decisions if decision.action == "fallback")


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a compiled function does: `aot_core.explain` returns it, ``print`` shows it as tables.

    Args:
        subject: Name of the function or module.
        backend: Name of the backend.
        settings: Its options, as plain data.
        graphs: In the order in which they were compiled.
        breaks: Graph breaks, each once.
        results: The leaves of what the function returned.
        written_elsewhere: Names of inputs whose elements change, and of which no graph tells that: between graphs,
            by a graph of which it is unknown, or through memory shared with an input of a graph.
        reshaped_elsewhere: Names of inputs whose size, strides or offset change, and of which no graph tells that.
    """

    subject: str
    backend: str
    settings: dict[str, Any]
    graphs: tuple[GraphExplanation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    results: tuple[OutputExplanation, ...] = ()
    written_elsewhere: tuple[str, ...] = ()
    reshaped_elsewhere: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the parameters, buffers and arguments whose elements change, each once."""
        return self._names_where(lambda given: bool(given.writes), self.written_elsewhere)

    @property
    def reshaped(self) -> tuple[str, ...]:
        """Names of the parameters, buffers and arguments whose size, strides or offset change, each once."""
        return self._names_where(lambda given: given.metadata_change is not None, self.reshaped_elsewhere)

    def _names_where(
        self, condition: Callable[[InputExplanation], bool], elsewhere: tuple[str, ...]
    ) -> tuple[str, ...]:
        given = [given for graph in self.graphs for given in graph.inputs]
        names = [
            name
            for entry in given
            if entry.kind != "intermediate" and condition(entry)
            for name in (entry.name, *entry.also_named)
        ]
        return tuple(dict.fromkeys([*names, *elsewhere]))

    @property
    def activation_bytes(self) -> int:
        """Bytes of all graphs' saved activations."""
        return sum(graph.activation_bytes for graph in self.graphs)

    @property
    def fallbacks(self) -> tuple[Decision, ...]:
        """The fallbacks of all graphs."""
        return tuple(decision for graph in self.graphs for decision in graph.fallbacks)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data: dictionaries, lists, strings, numbers, booleans and None."""
        plain: dict[str, Any] = _listed(dataclasses.asdict(self))
        plain["written"] = list(self.written)
        plain["reshaped"] = list(self.reshaped)
        plain["activation_bytes"] = self.activation_bytes
        for graph, entry in zip(self.graphs, plain["graphs"], strict=True):
            entry["activation_bytes"] = graph.activation_bytes
            entry["saved_input_bytes"] = graph.saved_input_bytes
        return plain

    def to_markdown(self) -> str:
        """Return the tables of ``print(explanation)`` in Markdown."""
        from aot_core.explaining.text import as_markdown

        return as_markdown(self)

    # Notebooks look for this name.
    _repr_markdown_ = to_markdown

    def __str__(self) -> str:
        from aot_core.explaining.text import as_text

        return as_text(self)


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    return value
