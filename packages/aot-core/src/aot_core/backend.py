"""A `torch.compile` backend made of compilers: the wrapper around AOTAutograd.

::

    backend(gm, example_inputs, mode=, options=)
      │ 1  options → frozen Settings
      │ 2  safety: what AOTAutograd can't run → the graph as it is, with a reason (strict: an error)
      │ 3  nested inputs → flat ones
      │ 4  aliasing: inputs that share memory → one base each, a variant for each alias signature
      │ 5  Stages: AOTAutograd traces, the partitioner cuts, the compilers compile
      ▼
    a function that Dynamo calls, and a CompileReport
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aot_core import _compat
from aot_core.aliasing.dealias import compile_without_aliases
from aot_core.autocast import autocast_state
from aot_core.compilation import Compilation
from aot_core.errors import UnsafeGraphError, UnsupportedModeError
from aot_core.nested_inputs import FlatInputs, has_nested_inputs
from aot_core.protocol import CompileReport
from aot_core.report import publish
from aot_core.runtime import ContextFactory, RuntimeContext
from aot_core.safety import find_unsafe, warn_once
from aot_core.settings import Settings, parse_settings
from aot_core.stages import Stages, Toolchain

if TYPE_CHECKING:
    from torch import fx

    from aot_core.protocol import Compiler, Partitioner
    from aot_core.stages import Decompositions

__all__ = ["Backend", "aot_autograd"]

_graph_numbers = itertools.count()


class Backend:
    """A backend for ``torch.compile``, made by `aot_autograd`.

    Its fields are read-only and it is compared by identity. Calling it compiles one graph; two calls can't
    see each other, in whatever threads they are.

    Attributes:
        name: What it is called in reports and errors.
        tags: The declared tags.
        settings_type: The class of its options.
        modes: The legal values of ``mode=`` besides None and ``"default"``.
    """

    name: str
    tags: tuple[str, ...]
    settings_type: type[Settings]
    modes: tuple[str, ...]
    _tools: Toolchain

    def __init__(
        self,
        name: str,
        tools: Toolchain,
        *,
        settings_type: type[Settings],
        tags: tuple[str, ...],
        modes: tuple[str, ...],
    ) -> None:
        fields = {
            "name": name,
            "__name__": name,
            "tags": tags,
            "settings_type": settings_type,
            "modes": modes,
            "_tools": tools,
        }
        self.__dict__.update(fields)

    # No __getattr__ here: Dynamo's frame evaluator looks for attributes on a backend, and a Python function
    # that answered would be one more frame to evaluate, without end.
    def __setattr__(self, field: str, value: Any) -> None:
        if field != "_tags":
            raise AttributeError(
                f"Backend {self.name!r} is read-only: can't set {field!r}. "
                "Make another with aot_autograd(...)."
            )

    @property
    def _tags(self) -> tuple[str, ...]:
        # What torch's registry reads, and writes on whatever it loads, always empty for an entry point. The
        # write is accepted, since torch insists; without effect, since the declared tags keep debug backends
        # out of torch's list.
        return self.tags

    @property
    def backend_ctx_ctor(self) -> ContextFactory:
        """The context that Dynamo enters around a compiled frame."""
        return self._tools.runtime_context or contextlib.nullcontext

    def __repr__(self) -> str:
        return f"<Backend {self.name!r}>"

    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph.

        Args:
            gm: Graph as Dynamo captured it. Not changed.
            example_inputs: Tensors (real or fake), ints, floats, bools, symbolic numbers, or containers of
                them. Only looked at; neither run, nor copied, nor kept.
            mode: As given to ``torch.compile``.
            options: As given to ``torch.compile``.

        Returns:
            A function of the graph's inputs that returns its outputs.

        Raises:
            UnknownOptionError, InvalidOptionValueError, UnsupportedModeError: see there.
            UnsafeGraphError: AOTAutograd can't run the graph, and strictness was asked for.
            CompilerError: a compiler or the partitioner failed.
        """
        compilation = self._new_compilation(mode, options, len(example_inputs))
        # The counters and the report close together, whatever happens in between.
        with _accounted(compilation), compilation.entered(), _compat.compile_config():
            if self._fall_back(gm, example_inputs, compilation):
                return _compat.keep_dynamo_out(gm.forward, reason="this graph runs as it is")
            forward_autocast = autocast_state()

            def compile_graph(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
                return Stages(self._tools, compilation, forward_autocast).run(gm, inputs)

            if has_nested_inputs(example_inputs):
                flat = FlatInputs(gm, example_inputs)
                compiled = flat.nest(
                    compile_without_aliases(flat.gm, flat.leaves, compile_graph, compilation)
                )
            else:
                compiled = compile_without_aliases(gm, example_inputs, compile_graph, compilation)
            return _compat.keep_dynamo_out(compiled, reason="a compiled graph is not traced")

    def _new_compilation(
        self, mode: str | None, options: Mapping[str, Any] | None, num_inputs: int
    ) -> Compilation:
        if mode not in (None, "default", *self.modes):
            legal = ", ".join(repr(legal) for legal in ("default", *self.modes))
            raise UnsupportedModeError(f"Backend {self.name!r} has no mode {mode!r}; its modes are: {legal}.")
        settings = parse_settings(self.settings_type, options, backend=self.name)
        number, frame = next(_graph_numbers), _compat.compile_id()
        graph = f"#{number}" if frame is None else f"#{number} [{frame}]"
        report = CompileReport(
            self.name, graph, settings.to_dict(), num_inputs=num_inputs, started=time.time()
        )
        return Compilation(self.name, graph, settings, None if mode == "default" else mode, report)

    def _fall_back(self, gm: fx.GraphModule, example_inputs: Sequence[Any], compilation: Compilation) -> bool:
        reasons = list(find_unsafe(gm, example_inputs))
        if not reasons:
            return False
        if compilation.settings.strict or _compat.raises_on_unsafe_graph():
            raise UnsafeGraphError(
                f"Backend {self.name!r} can't compile graph {compilation.graph}: "
                f"{'; '.join(map(str, reasons))}. Without strict it would run the graph as it is."
            )
        compilation.report.decisions.extend(reasons)
        compilation.report.status = "fallback"
        for reason in reasons:
            warn_once(reason)
        return True


@contextlib.contextmanager
def _accounted(compilation: Compilation) -> Iterator[None]:
    """Count the compile in torch's counters, and publish its report."""
    report = compilation.report
    _compat.count("total")
    try:
        yield
        if report.status == "compiling":
            report.status = "ok"
        _compat.count("ok" if report.status == "ok" else "not_ok")
    except BaseException as error:
        report.status = "failed"
        report.error = f"{type(error).__name__}: {error}"
        # Dynamo starts over with floats as tensors, and counts once.
        if not _compat.is_control_flow(error):
            _compat.count("not_ok")
        raise
    finally:
        report.compile_seconds = time.perf_counter() - compilation.started
        publish(report)


# Weak, so that a backend made in a function dies with its last user.
_made: weakref.WeakValueDictionary[tuple[Any, ...], Backend] = weakref.WeakValueDictionary()


def aot_autograd(
    *,
    name: str,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    partition_fn: Partitioner | None = None,
    decompositions: Decompositions | Callable[[], Decompositions] | None = None,
    runtime_context: ContextFactory | None = None,
    settings: type[Settings] | None = None,
    tags: Sequence[str] = (),
    modes: Sequence[str] = (),
    keep_inference_input_mutations: bool = False,
) -> Backend:
    """Make a ``torch.compile`` backend out of compilers of functional ATen graphs.

    The same arguments give the same object for as long as it is in use: torch recompiles a function whose
    backend is not the one it was compiled with (pytorch/pytorch#168373).

    Args:
        name: What it is called in reports, errors and ``AOT_<NAME>_OPTIONS``.
        fw_compiler: Compiles forward graphs; and the others, where these are not given.
        bw_compiler: Compiles backward graphs. Runs together with the forward's.
        inference_compiler: Compiles graphs of calls that need no gradient.
        partition_fn: Cuts joint graphs; by default, the backward gets what eager autograd would save.
        decompositions: ``{operator: function}``, or a callable that returns such a table, asked at each
            compile.
        runtime_context: Makes a context manager that is entered around each forward and backward.
        settings: A frozen dataclass derived from `Settings`: the options that the backend takes.
        tags: See `aot_core.protocol.KNOWN_TAGS`.
        modes: Values of ``mode=`` that the backend understands, besides ``"default"``.
        keep_inference_input_mutations: Leave the writes to inputs that autograd does not record in the
            graphs, as ``copy_`` at the end, for compilers that can handle them. Otherwise graphs are
            functional, and the wrapper does these writes.

    Raises:
        TypeError: a compiler or partitioner that can't be called, or settings that are no subclass of
            `Settings`.
    """
    for role, function in (
        ("fw_compiler", fw_compiler),
        ("bw_compiler", bw_compiler),
        ("inference_compiler", inference_compiler),
        ("partition_fn", partition_fn),
        ("runtime_context", runtime_context),
    ):
        if not callable(function) and (function is not None or role == "fw_compiler"):
            raise TypeError(f"aot_autograd(name={name!r}) expects {role} to be callable, got {function!r}.")
    settings = Settings if settings is None else settings
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise TypeError(
            f"aot_autograd(name={name!r}) expects settings to be a dataclass derived from aot_core.Settings, "
            f"got {settings!r}."
        )
    arguments = (
        fw_compiler,
        bw_compiler,
        inference_compiler,
        partition_fn,
        decompositions,
        runtime_context,
        settings,
    )
    # By identity: a backend holds all of these, so no id can be reused while its entry is there. Holding the
    # objects themselves in the key would keep a compiler that refers to its backend alive for ever.
    key = (
        name,
        *(_identity(argument) for argument in arguments),
        tuple(tags),
        tuple(modes),
        keep_inference_input_mutations,
    )
    backend = _made.get(key)
    if backend is None:
        tools = Toolchain(
            fw_compiler=fw_compiler,
            bw_compiler=bw_compiler or fw_compiler,
            inference_compiler=inference_compiler or fw_compiler,
            partition_fn=partition_fn or _compat.default_partition,
            decompositions=decompositions,
            runtime_context=None if runtime_context is None else RuntimeContext(runtime_context),
            keep_inference_input_mutations=keep_inference_input_mutations,
        )
        backend = Backend(name, tools, settings_type=settings, tags=tuple(tags), modes=tuple(modes))
        _made[key] = backend
    return backend


def _identity(argument: Any) -> tuple[int, ...]:
    # obj.method is a new object each time it is written.
    if hasattr(argument, "__self__") and hasattr(argument, "__func__"):
        return (id(argument.__self__), id(argument.__func__))
    return (id(argument),)
