"""A backend of which only a part takes part: what one run of a bisection hands to ``torch.compile``.

A backend hands its compilers, partitioner and decompositions to AOTAutograd. A trial stands in between and exchanges
those that are beyond its stage, or beyond its limits, for what eager would do::

    stage             decompositions   partition   compilers
    dynamo            (the backend is not called: the captured graph runs as it is)
    aot               none             eager's     eager kernels
    decompositions    the backend's    eager's     eager kernels
    partition         the backend's    its own     eager kernels
    backend           the backend's    its own     its own

A backend that hands nothing to AOTAutograd is one stage for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import fx

from aot_core import boxed, boxed_code
from aot_registry import _compat
from aot_registry.bisecting.copies import laid_out_copy
from aot_registry.bisecting.observation import memory_of, random_state
from aot_registry.bisecting.prefix import Cut, copy_graph

__all__ = ["STAGES", "Captured", "DecompositionCall", "Limits", "Parts", "Role", "Stage", "Trial", "Unit"]

Stage = Literal["dynamo", "aot", "decompositions", "partition", "backend"]
STAGES: tuple[Stage, ...] = ("dynamo", "aot", "decompositions", "partition", "backend")
Role = Literal["forward", "backward", "inference"]
Calls = dict[str, tuple[list[Any], torch.Tensor]]
"""By role, the inputs of the first call (copies), and the state of random numbers before it."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much of a stage takes part. None: all of it.

    Args:
        graphs: This many of the graphs that Dynamo captures; the others run as captured.
        captured_steps: Of the last of those graphs, this many steps are handed to the backend.
        units: This many of the compiled graphs, forward and backward each counting one; the others run eagerly.
        unit_steps: Of the last of those, this many steps are compiled.
        calls: This many calls of decompositions.
    """

    graphs: int | None = None
    captured_steps: int | None = None
    units: int | None = None
    unit_steps: int | None = None
    calls: int | None = None


@dataclasses.dataclass
class Captured:
    """A graph as Dynamo captured it.

    Args:
        gm: A copy.
        held: Positions of the inputs that are parameters and buffers of a module.
        inputs: Copies of what it was first called with, if it was and values are kept.
        memory: Which memory each input lies in, as a number; None for what has none.
        reached: Whether the backend handed it to AOTAutograd.
    """

    gm: fx.GraphModule
    held: list[int]
    inputs: list[Any] | None = None
    memory: list[int | None] = dataclasses.field(default_factory=list)
    reached: bool = False


@dataclasses.dataclass(frozen=True)
class Unit:
    """A graph that a compiler got.

    Args:
        graph: Number of the captured graph that it comes from.
        role: Which compiler.
        gm: A copy.
    """

    graph: int
    role: Role
    gm: fx.GraphModule


@dataclasses.dataclass
class DecompositionCall:
    """One call of a decomposition.

    Args:
        operator: What it was to decompose.
        declined: Whether the operator stayed as it was.
    """

    operator: Any
    declined: bool = False


@dataclasses.dataclass
class Parts:
    """A joint graph, what the partitioner made of it, and what the two parts were called with.

    Args:
        graph: Number of the captured graph.
        joint: A copy.
        num_fwd_outputs: How many of its outputs belong to the forward.
        forward: A copy.
        backward: A copy.
        calls: What they were called with, if values are kept.
    """

    graph: int
    joint: fx.GraphModule
    num_fwd_outputs: int
    forward: fx.GraphModule
    backward: fx.GraphModule
    calls: Calls


class Trial:
    """A backend for ``torch.compile``, made of another; for one run.

    Args:
        backend: The backend that is bisected.
        stage: How far to go.
        limits: How much of the last stage.
        options: As for ``torch.compile``; None: none are passed on.
        keep_values: Also keep what graphs are called with.

    Attributes:
        captured: Graphs of Dynamo, in order.
        units: Graphs handed to compilers, in order.
        calls: Calls of decompositions, in order.
        parts: Joint graphs and their parts, in order.
    """

    def __init__(
        self,
        backend: Callable[..., Any],
        stage: Stage,
        limits: Limits | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        keep_values: bool = False,
    ) -> None:
        self.stage = stage
        self.captured: list[Captured] = []
        self.units: list[Unit] = []
        self.calls: list[DecompositionCall] = []
        self.parts: list[Parts] = []
        self._backend = backend
        self._limits = limits or Limits()
        self._kwargs = {"options": dict(options)} if options else {}
        self._keep_values = keep_values
        self._current = 0
        self._depth = STAGES.index(stage)
        # Dynamo enters the context that it finds here around a compiled frame.
        if stage == "backend" and hasattr(backend, "backend_ctx_ctor"):
            self.backend_ctx_ctor = backend.backend_ctx_ctor

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Exchange tools while the block runs: some backends compile a graph only when it is called."""
        with _compat.tools_exchanged(self._exchange):
            yield

    @property
    def reached_aot(self) -> bool:
        """Whether the backend handed any graph to AOTAutograd."""
        return any(captured.reached for captured in self.captured)

    def __call__(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        """Compile a graph of Dynamo's as far as stage and limits say."""
        number, limits = len(self.captured), self._limits
        placeholders = gm.graph.find_nodes(op="placeholder")
        held = [i for i, node in enumerate(placeholders) if _compat.is_tensor_of_module(node)]
        captured = Captured(copy_graph(gm), held)
        self.captured.append(captured)
        self._current = number
        last = limits.graphs is not None and number == limits.graphs - 1
        if self.stage == "dynamo" or (limits.graphs is not None and number >= limits.graphs):
            compiled: Callable[..., Any] = gm.forward
        elif last and limits.captured_steps is not None:
            cut = Cut(gm, limits.captured_steps)
            first = self._backend(cut.first, example_inputs, **self._kwargs)
            joined = cut.joined(first)

            def compiled(*args: Any) -> Any:
                return joined(list(args))
        else:
            compiled = self._backend(gm, example_inputs, **self._kwargs)

        def run(*args: Any) -> Any:
            self._current = number
            if self._keep_values and captured.inputs is None:
                captured.inputs = [_kept(arg) for arg in args]
                captured.memory = [memory_of(arg) if isinstance(arg, torch.Tensor) else None for arg in args]
            return compiled(*args)

        return run

    def _exchange(self, tools: _compat.Tools) -> _compat.Tools:
        graph = self._current
        self.captured[graph].reached = True
        calls: Calls = {}
        return _compat.Tools(
            forward=self._compiler("forward", tools.forward, calls),
            backward=self._compiler("backward", tools.backward, calls),
            inference=self._compiler("inference", tools.inference, calls),
            partition=self._partitioner(tools.partition, graph, calls),
            decompositions=self._decompositions(tools.decompositions)
            if self._goes_to("decompositions")
            else {},
        )

    def _goes_to(self, stage: Stage) -> bool:
        return self._depth >= STAGES.index(stage)

    def _compiler(self, role: Role, own: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
        limits, graph = self._limits, self._current

        def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            number = len(self.units)
            self.units.append(Unit(graph, role, copy_graph(gm)))
            if self.stage != "backend" or (limits.units is not None and number >= limits.units):
                return self._eagerly(role, gm, calls)
            if limits.unit_steps is None or limits.units is None or number < limits.units - 1:
                compiled: Callable[..., Any] = own(gm, example_inputs)
                return compiled
            cut = Cut(gm, limits.unit_steps)
            first = own(cut.first, example_inputs)
            return boxed(cut.joined(_one_by_one(first)))

        return compile_graph

    def _eagerly(self, role: Role, gm: fx.GraphModule, calls: Calls) -> Callable[..., Any]:
        compiled = boxed_code(gm)
        if not self._keep_values:
            return compiled

        def run(args: list[Any]) -> Any:
            if role not in calls:
                calls[role] = ([_kept(arg) for arg in args], random_state())
            return compiled(args)

        return boxed(run)

    def _partitioner(self, own: Callable[..., Any], graph: int, calls: Calls) -> Callable[..., Any]:
        partition = own if self._goes_to("partition") else _compat.default_partition

        def cut(joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any) -> Any:
            before = copy_graph(joint)
            parts = partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
            forward, backward = parts
            self.parts.append(
                Parts(graph, before, num_fwd_outputs, copy_graph(forward), copy_graph(backward), calls)
            )
            return parts

        return cut

    def _decompositions(self, table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
        return {operator: self._limited(operator, function) for operator, function in table.items()}

    def _limited(self, operator: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        limit = self._limits.calls

        def decompose(*args: Any, **kwargs: Any) -> Any:
            number = len(self.calls)
            call = DecompositionCall(operator)
            self.calls.append(call)
            result = NotImplemented if limit is not None and number >= limit else function(*args, **kwargs)
            call.declined = result is NotImplemented
            return result

        return decompose


def _one_by_one(compiled: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(compiled, "_boxed_call", False):
        return lambda *args: compiled(list(args))
    return compiled


def _kept(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return laid_out_copy(value).requires_grad_(value.requires_grad)
