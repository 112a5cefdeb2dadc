"""The contract between a backend, whoever finds it, and whoever reads what it decided.

Everything here is plain data or a typing protocol. Importing this module never imports torch, so that a
tool can list a hundred installed backends in the time it takes to read their metadata.

The flow that these types describe::

    BackendInfo ──(probe)──> Availability          what is installed, and does it work here?
    options ──> Settings ──> Compilation           one call of Backend.__call__
    graph ──> Compiler / Partitioner ──> callable  the stages a backend is made of
    Decision* ──> CompileReport                    what happened, and why
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import fx

__all__ = [
    "PROTOCOL_VERSION",
    "Availability",
    "BackendInfo",
    "BoxedCallable",
    "CompileReport",
    "Compiler",
    "Decision",
    "Partitioner",
]

PROTOCOL_VERSION = 1
"""Raised only when a backend written against an older number would stop working."""

KNOWN_TAGS = ("training", "inference", "debug", "experimental", "cpu", "cuda", "xla")
"""Tags with an agreed meaning. A backend may add its own."""


@dataclasses.dataclass(frozen=True)
class BackendInfo:
    """What a package says about one of its backends, without importing torch.

    Declared in entry-point group ``aot_backends``, under the backend's name; the module that holds it must
    import without torch.

    Args:
        name: What the user passes to ``torch.compile(backend=...)``.
        target: ``"module:attribute"`` of the backend object, the same as in group ``torch_dynamo_backends``.
        summary: One line for a listing.
        tags: What it is for; see ``KNOWN_TAGS``.
        probe: ``"module:function"``, a function without arguments that returns an `Availability`. It is run
            in a subprocess. None means that importing ``target`` is proof enough.
        overrides: A name that torch owns, under which ``aot_registry.activate()`` puts this backend.
        protocol: The `PROTOCOL_VERSION` it was written against.

    Raises:
        ValueError: a name or target that is not of the form above.
    """

    name: str
    target: str
    summary: str
    tags: tuple[str, ...] = ()
    probe: str | None = None
    overrides: str | None = None
    protocol: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"BackendInfo.name must be an identifier, got {self.name!r}")
        for field in ("target", "probe"):
            reference = getattr(self, field)
            if reference is None:
                continue
            module, colon, attribute = reference.partition(":")
            dotted = module.split(".") + attribute.split(".")
            if not colon or not all(part.isidentifier() for part in dotted):
                raise ValueError(
                    f"BackendInfo.{field} of {self.name!r} must read 'module:attribute', got {reference!r}"
                )


@dataclasses.dataclass(frozen=True)
class Availability:
    """What a probe answers: can this backend compile and run *here*, not merely be imported.

    Args:
        usable: True if it can.
        reason: Why not, in one sentence; may say what was found when usable.
        remedy: What to type or change to make it usable.
    """

    usable: bool
    reason: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Decision:
    """One thing that a compiler did that a user may want explained.

    Every fallback, skip, split, save or recompute is one of these. Reports, logs, traces, tables and errors
    are all views of the same records.

    Args:
        stage: Where in the flow: ``"options"``, ``"safety"``, ``"aliasing"``, ``"trace"``, ``"partition"``,
            ``"forward"``, ``"backward"``, ``"inference"``, or a name of the backend's own.
        subject: What it is about: an op, a node, an input, the graph.
        action: What was done: ``"fallback"``, ``"skip"``, ``"split"``, ``"save"``, ``"recompute"``, …
        code: A stable kebab-case identifier of the cause, for machines.
        detail: The cause for people, in one or two sentences.
        source: The user's source line, ``"file.py:41"``, where known.
        nodes: Names of the nodes, in the graph of ``stage``, that are now one piece: a fused region, a captured
            island. Empty for what is not about a piece of a graph.
    """

    stage: str
    subject: str
    action: str
    code: str
    detail: str = ""
    source: str | None = None
    nodes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {**dataclasses.asdict(self), "nodes": list(self.nodes)}

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        why = f": {self.detail}" if self.detail else ""
        return f"[{self.stage}] {self.action} {self.subject}{where} [{self.code}]{why}"


@dataclasses.dataclass
class CompileReport:
    """All that is worth telling of one compiled graph. Holds no tensor and no graph.

    Args:
        backend: Name of the backend.
        graph: Name of the graph, unique in this process.
        settings: The options in force, as plain data.
        status: ``"compiling"``, ``"ok"``, ``"fallback"`` or ``"failed"``.
        error: Message of the exception, when failed.
        num_inputs: Inputs of the graph that Dynamo handed over.
        stages: Per compiled graph (``"joint"``, ``"forward"``, ``"backward"``, ``"inference"``) its number
            of operations, the seconds spent compiling it, and its ``"start"``: in seconds after ``started``.
        decisions: In the order in which they were taken.
        compile_seconds: Wall time of the whole compile.
        started: When the compile began, in seconds since 1970.
    """

    backend: str
    graph: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    status: str = "compiling"
    error: str | None = None
    num_inputs: int = 0
    stages: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    decisions: list[Decision] = dataclasses.field(default_factory=list)
    compile_seconds: float = 0.0
    started: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        decisions = [decision.to_dict() for decision in self.decisions]
        return {**dataclasses.asdict(self), "decisions": decisions}


@runtime_checkable
class BoxedCallable(Protocol):
    """Takes one list of inputs, which it may empty to free them early, and returns the outputs.

    ``_boxed_call`` is AOTAutograd's mark for this calling convention (pytorch/pytorch#122759).
    """

    _boxed_call: bool

    def __call__(self, args: list[Any], /) -> Any: ...


class Compiler(Protocol):
    """Turns one functional ATen graph into something callable.

    Receives the graph and its (fake) inputs. Returns a `BoxedCallable`, or any callable that takes the
    inputs one by one, which the wrapper will box. What else it needs to know, `aot_core.current_compilation`
    tells.
    """

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], /) -> Callable[..., Any]: ...


class Partitioner(Protocol):
    """Cuts a joint graph into a forward and a backward graph.

    Before::

        joint(primals, tangents) -> (outputs, gradients)

    After::

        forward(primals) -> (outputs, saved)
        backward(saved, tangents) -> gradients
    """

    def __call__(
        self, joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]: ...
