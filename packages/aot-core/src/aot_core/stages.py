"""The compilers and the partitioner of a backend, as AOTAutograd gets to see them.

AOTAutograd calls them in this order::

    training     partition ──> forward ──> backward
    inference    inference

Around each call stands what every backend needs: Dynamo kept out, time and graph size noted, graphs written
where ``TORCH_COMPILE_DEBUG=1`` asks for it, results boxed, failures named after backend, graph and stage.
Nothing of a backend is changed, so that compiles can't see each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from aot_core import _compat
from aot_core.autocast import (
    AUTOCAST_OFF,
    AutocastState,
    describe,
    only_autocast,
    with_forward_autocast,
)
from aot_core.backward_variants import AbstractInputs, BackwardVariants
from aot_core.boxed_calls import boxed, ensure_boxed
from aot_core.compilation import Compilation
from aot_core.errors import (
    AotError,
    BackwardAutocastError,
    CompilerError,
    InvalidCompilerResultError,
    UnsupportedAliasingError,
)
from aot_core.graph_dump import dump_graph
from aot_core.input_mutations import lift_input_mutations_, write_inputs_after
from aot_core.partition_replay import PartitionInterface, cut_along
from aot_core.protocol import Decision
from aot_core.runtime import RuntimeContext, without_autocast
from aot_core.undefined_gradients import find_gradient_paths, respect_undefined_gradients

if TYPE_CHECKING:
    from torch import fx

    from aot_core.protocol import BoxedCallable, Compiler, Partitioner

__all__ = ["Stages", "Toolchain"]

Decompositions = Mapping[Any, Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """What a backend is made of. See `aot_core.aot_autograd` for the fields."""

    fw_compiler: Compiler
    bw_compiler: Compiler
    inference_compiler: Compiler
    partition_fn: Partitioner
    decompositions: Decompositions | Callable[[], Decompositions] | None
    runtime_context: RuntimeContext | None
    keep_inference_input_mutations: bool


class Stages:
    """One compile of one graph with one toolchain.

    Args:
        tools: The backend's compilers, partitioner and decompositions.
        compilation: Whose settings are in force and whose report is written.
        forward_autocast: State in force where the model is called.
    """

    def __init__(self, tools: Toolchain, compilation: Compilation, forward_autocast: AutocastState) -> None:
        self._tools = tools
        self._compilation = compilation
        self._forward_autocast = forward_autocast
        self._decompositions = _evaluate(tools.decompositions)
        self._interface: PartitionInterface | None = None

    def run(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph over flat inputs, and return a function of these inputs, one by one."""
        abstract_inputs = AbstractInputs(gm, example_inputs)

        def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> BoxedCallable:
            base = self._compile("backward", self._tools.bw_compiler, graph, inputs)
            variants = BackwardVariants(base, lambda state: self._compile_variant(gm, abstract_inputs, state))
            # Autograd calls it, perhaps inside a frame that Dynamo is looking at.
            kept_out = _compat.keep_dynamo_out(
                variants.as_boxed(), reason="a compiled backward is not traced"
            )
            return self._in_context(boxed(kept_out))

        def found(function: type[torch.autograd.Function], tangents: dict[int, _compat.Tangent]) -> None:
            respect_undefined_gradients(function, tangents, lambda: find_gradient_paths(gm, example_inputs))

        with only_autocast(AUTOCAST_OFF), _compat.watching_compiled_functions(found):
            return self._aot_autograd(
                with_forward_autocast(gm, self._forward_autocast, ambient=AUTOCAST_OFF),
                example_inputs,
                fw_compiler=lambda graph, inputs: self._in_context(
                    without_autocast(self._compile("forward", self._tools.fw_compiler, graph, inputs))
                ),
                bw_compiler=backward,
                inference_compiler=lambda graph, inputs: self._in_context(
                    without_autocast(
                        self._compile("inference", self._tools.inference_compiler, graph, inputs)
                    )
                ),
                partition_fn=self._partition,
            )

    def _aot_autograd(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], **stages: Any
    ) -> Callable[..., Any]:
        # AOTAutograd keeps the table and may add to it.
        table = None if self._decompositions is None else dict(self._decompositions)
        # The writes that autograd must not see are always left in the graph. Who can't use them there gets
        # them lifted: AOTAutograd itself would have autograd record them.
        try:
            return _compat.compile_with_aot_autograd(
                gm, example_inputs, decompositions=table, keep_inference_input_mutations=True, **stages
            )
        except RuntimeError as error:
            if not _compat.is_refused_write(error):
                raise
            raise UnsupportedAliasingError(
                f"{self._compilation.subject} writes to memory in a way that can't be traced: {error} Write to "
                "the tensor itself instead of a view, or to a copy."
            ) from error

    def _in_context(self, compiled: BoxedCallable) -> BoxedCallable:
        context = self._tools.runtime_context
        return compiled if context is None else context.around(compiled)

    def _compile(
        self, stage: str, compiler: Compiler, graph: fx.GraphModule, inputs: Sequence[Any]
    ) -> BoxedCallable:
        with self._stage(stage, graph):
            lift = not self._tools.keep_inference_input_mutations
            written = lift_input_mutations_(graph) if lift else []
            compile_graph = _compat.keep_dynamo_out(compiler, reason="a compiler is not traced")
            compiled = ensure_boxed(compile_graph(graph, inputs), subject=self._name_compiler(stage))
            return write_inputs_after(compiled, written) if written else compiled

    def _partition(
        self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        with self._stage("joint", joint):
            partition = _compat.keep_dynamo_out(
                self._tools.partition_fn, reason="a partitioner is not traced"
            )
            kwargs = _compat.accepted(self._tools.partition_fn, kwargs)
            parts = partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
            if not (isinstance(parts, tuple) and len(parts) == 2):
                raise InvalidCompilerResultError(
                    f"{self._name_compiler('joint')} returned {type(parts).__name__}, expected a forward and "
                    "a backward GraphModule."
                )
            forward, backward = parts
            self._interface = PartitionInterface.of(forward, backward, num_fwd_outputs=num_fwd_outputs)
            return forward, backward

    def _compile_variant(
        self, gm: fx.GraphModule, abstract_inputs: AbstractInputs, state: AutocastState
    ) -> BoxedCallable:
        """Compile the backward once more, for ``.backward()`` under another autocast state."""
        compilation, interface = self._compilation, self._interface
        assert interface is not None  # a backward comes out of a partition
        if abstract_inputs.obstacle is not None:
            raise BackwardAutocastError(
                f"Backend {compilation.backend!r} traced the backward of graph {compilation.graph} with "
                f"autocast off, and .backward() was called under autocast {describe(state)}. It can't be "
                f"traced again because {abstract_inputs.obstacle}. Call .backward() outside autocast."
            )
        found: list[BoxedCallable] = []

        def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> BoxedCallable:
            stage = f"backward under {describe(state)}"
            found.append(self._compile(stage, self._tools.bw_compiler, graph, inputs))
            return found[0]

        with (
            compilation.entered(),
            _compat.compile_config(),
            torch.inference_mode(False),
            torch.enable_grad(),
            only_autocast(state),
            abstract_inputs.traced() as inputs,
        ):
            self._aot_autograd(
                with_forward_autocast(gm, self._forward_autocast, ambient=state),
                inputs,
                fw_compiler=lambda graph, inputs: boxed(_never_called),
                bw_compiler=backward,
                partition_fn=lambda joint, joint_inputs, *, num_fwd_outputs, **kwargs: cut_along(
                    joint, interface, num_fwd_outputs=num_fwd_outputs
                ),
            )
        compilation.decide(
            Decision(
                stage="backward",
                subject=f"graph {compilation.graph}",
                action="compile variant",
                code="backward-autocast",
                detail=f".backward() was called under autocast {describe(state)}",
            )
        )
        return found[0]

    @contextlib.contextmanager
    def _stage(self, stage: str, graph: fx.GraphModule) -> Iterator[None]:
        """Note and name what happens to one graph."""
        compilation = self._compilation
        compilation.stage = "partition" if stage == "joint" else stage
        dump_graph(graph, graph=compilation.graph, stage=stage)
        started = time.perf_counter()
        try:
            yield
        except AotError:
            raise
        except Exception as error:
            if _compat.is_control_flow(error):
                raise
            raise CompilerError(
                f"{self._name_compiler(stage)} failed: {type(error).__name__}: {error}."
            ) from error
        finally:
            compilation.report.stages[stage] = {
                "operations": sum(node.op == "call_function" for node in graph.graph.nodes),
                "seconds": time.perf_counter() - started,
                "start": started - compilation.started,
            }
            compilation.stage = "trace"

    def _name_compiler(self, stage: str) -> str:
        role = "The partitioner" if stage == "joint" else f"The {stage} compiler"
        return f"{role} of backend {self._compilation.backend!r}, at graph {self._compilation.graph},"


def _evaluate(decompositions: Decompositions | Callable[[], Decompositions] | None) -> Decompositions | None:
    """Return the table as it stands now: a callable is asked at each compile."""
    if decompositions is None or isinstance(decompositions, Mapping):
        return decompositions
    return decompositions()


def _never_called(args: list[Any]) -> Any:
    raise AssertionError("the forward of a second trace is not run")
