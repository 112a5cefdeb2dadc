"""The only file of this package that touches PyTorch's private interfaces.

What differs between torch 2.9 and 2.15 is told apart by looking for it, never by a version number. Each
function says what it stands for, so that a reader of the other files need not know torch's internals.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
)

if TYPE_CHECKING:
    from torch import fx

__all__ = ["TorchDispatchMode", "pytree"]

REQUIRED = (
    ("torch._functorch.aot_autograd", "aot_module_simplified"),
    ("torch._functorch.config", "patch"),
    ("torch._functorch.config", "force_non_lazy_backward_lowering"),
    ("torch._dynamo.utils", "counters"),
    ("torch._guards", "TracingContext"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    ("torch._C", "_DisableAutocast"),
    ("torch._C", "_is_any_autocast_enabled"),
    ("functorch.compile", "default_partition"),
)


def missing_interfaces() -> list[str]:
    """Return the names in torch that this package needs and that this torch lacks."""
    missing = []
    for module, name in REQUIRED:
        try:
            found = hasattr(importlib.import_module(module), name)
        except ImportError:
            found = False
        if not found:
            missing.append(f"{module}.{name}")
    return missing


# --- compiling ---------------------------------------------------------------------------------------------

# torch's config is process-global up to 2.10 and its tracer is not re-entrant across threads in any release.
# Re-entrant, because a compiler may itself compile.
_compile_lock = threading.RLock()


@contextlib.contextmanager
def compile_config() -> Iterator[None]:
    """Hold torch's configuration as this package needs it, for one compile.

    The backward is compiled with the forward: a lazy one would escape the compile's context, its report and
    its error handling. AOTAutograd's own cache stays out of it: its key knows nothing of a backend or its
    settings, so a hit could be another backend's result. No saved activation is donated to the backward: that
    would forbid ``retain_graph=True``, of which nothing is known when the backward is compiled.
    """
    from torch._functorch import config

    wanted = {
        "force_non_lazy_backward_lowering": True,
        "enable_autograd_cache": False,
        "enable_remote_autograd_cache": False,
        "force_autograd_cache": False,
        "bundled_autograd_cache": False,
    }
    known = {name: value for name, value in wanted.items() if hasattr(config, name)}
    with _compile_lock, config.patch(known), _nothing_donated():
        yield


@contextlib.contextmanager
def _nothing_donated() -> Iterator[None]:
    # The switch config.donated_buffer is read at compile time and again at run time, where "none were looked
    # for" counts as "some were found" (torch 2.10 to 2.13). So they are looked for, and none is found.
    module = importlib.import_module("torch._functorch._aot_autograd.graph_compile")
    name = "collect_bw_donated_buffer_idxs"
    collect = getattr(module, name, None)
    if collect is None:
        yield
        return
    setattr(module, name, lambda *args, **kwargs: [])
    try:
        yield
    finally:
        setattr(module, name, collect)


def compile_with_aot_autograd(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Call torch's ``aot_module_simplified``: trace, partition, hand the graphs to the compilers.

    Returns a function of the flat inputs, one by one.
    """
    from torch._functorch.aot_autograd import aot_module_simplified

    compiled: Callable[..., Any] = aot_module_simplified(gm, example_inputs, **kwargs)
    return compiled


def default_partition(
    joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Save for the backward what eager autograd would save."""
    partition = importlib.import_module("functorch.compile").default_partition
    kwargs = accepted(partition, {"num_fwd_outputs": num_fwd_outputs, **kwargs})
    parts: tuple[fx.GraphModule, fx.GraphModule] = partition(joint, joint_inputs, **kwargs)
    return parts


def inductor_partition(
    joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Inductor's min-cut partitioner."""
    partition = importlib.import_module("functorch.compile").min_cut_rematerialization_partition
    kwargs = accepted(partition, {"compiler": "inductor", "num_fwd_outputs": num_fwd_outputs, **kwargs})
    parts: tuple[fx.GraphModule, fx.GraphModule] = partition(joint, joint_inputs, **kwargs)
    return parts


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's decomposition table, as its configuration stands now."""
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Callable[..., Any]] = select_decomp_table()
    return table


def copy_dynamo_notes(source: fx.Node, target: fx.Node) -> None:
    """Copy what Dynamo notes on an input node outside its ``meta``: where its value comes from."""
    if hasattr(source, "_dynamo_source"):
        target._dynamo_source = source._dynamo_source


def boxed_code_generator() -> Any:
    """Return a code generator for graphs whose ``forward`` takes one list and empties it."""
    from torch.fx.graph import _BoxedCodeGen

    return _BoxedCodeGen()


def accepted(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return those keyword arguments that ``function`` has a parameter for."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return kwargs
    return {name: value for name, value in kwargs.items() if name in parameters}


def keep_dynamo_out(function: Callable[..., Any], *, reason: str) -> Callable[..., Any]:
    """Return a function that Dynamo neither traces nor looks into, wherever it is called."""
    kept_out: Callable[..., Any] = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]
    return kept_out


def is_control_flow(error: BaseException) -> bool:
    """Tell whether an exception steers Dynamo (restart, skip) rather than reporting a fault."""
    from torch._dynamo import exc

    steering = (getattr(exc, name, None) for name in ("RestartAnalysis", "SkipFrame"))
    return isinstance(error, tuple(kind for kind in steering if kind is not None))


def count(outcome: str) -> None:
    """Add one to torch's ``counters["aot_autograd"][outcome]``."""
    from torch._dynamo.utils import counters

    counters["aot_autograd"][outcome] += 1


def raises_on_unsafe_graph() -> bool:
    """Read torch's own switch for strictness, ``torch._dynamo.config.raise_on_unsafe_aot_autograd``."""
    from torch._dynamo import config

    return bool(getattr(config, "raise_on_unsafe_aot_autograd", False))


def in_compiled_autograd() -> bool:
    """Tell whether the graph at hand was made by torch's compiled autograd."""
    module = importlib.import_module("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "in_compiled_autograd_region", False))


# --- autocast ----------------------------------------------------------------------------------------------

any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
disabled_autocast: Callable[[], contextlib.AbstractContextManager[None]] = torch._C._DisableAutocast


def autocast_devices() -> list[str]:
    """Return the device types for which this torch has autocast at all."""
    names: list[str] = torch._C._autocast_supported_devices()
    return names


# What a traced graph calls to enter torch.autocast(device, dtype, enabled, cache_enabled), and to leave it.
AUTOCAST_NODES = (torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast)


# --- fake tensors ------------------------------------------------------------------------------------------


def is_fake(value: Any) -> bool:
    """Tell whether a value is a tensor without storage."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def new_fake_mode() -> Any:
    """Return a mode under which factory functions make tensors without storage.

    Sizes that are numbers stay numbers; one that depends on data becomes a symbol.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def is_subclass(value: torch.Tensor) -> bool:
    """Tell whether a tensor wraps others, such as a DTensor, and so has no storage of its own."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or is_fake(value)
    return not plain or is_traceable_wrapper_subclass(value)


def fake_mode_of(value: Any) -> Any:
    """Return the mode that a fake tensor was made under."""
    return value.fake_mode


@contextlib.contextmanager
def tracing_under(fake_mode: Any) -> Iterator[None]:
    """Trace as Dynamo would, with a tracing context of our own: no guard of a finished frame is touched."""
    from torch._guards import TracingContext, tracing

    with tracing(TracingContext(fake_mode)):
        yield


def fake_tensor_limits() -> tuple[type[Exception], ...]:
    """Return what fake tensors raise for an operation whose output depends on data."""
    from torch._subclasses import fake_tensor

    names = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedFakeTensorException")
    found = (getattr(fake_tensor, name, None) for name in names)
    return tuple(kind for kind in found if kind is not None)


def expression(value: Any) -> Any:
    """Return the sympy expression of a symbolic number."""
    return value.node.expr


def is_operator(target: Any) -> bool:
    """Tell whether a node's target is an operator of the dispatcher."""
    return isinstance(target, torch._ops.OpOverload)


def hint(value: Any) -> int | None:
    """Return the number that a (symbolic) int stood for when it was traced, or None if it stood for none."""
    if isinstance(value, int):
        return value
    node = getattr(value, "node", None)
    found = getattr(node, "hint", None)
    return found if isinstance(found, int) else None


# --- effects and aliases -----------------------------------------------------------------------------------


def written_arguments(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a call of a dispatcher operator writes.

    Most schemas mark them. Some batch norms write their running statistics unmarked; for these, torch keeps
    notes apart from the schema (``batch_norm_update_stats`` is in neither).
    """
    schema = getattr(function, "_schema", None)
    if schema is None:
        return []
    marked = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    if not any(marked) and "batch_norm" in schema.name:
        marked = _hidden_writes(schema, args, kwargs)
    found: list[torch.Tensor] = []
    for position, argument in enumerate(schema.arguments):
        if marked[position]:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return found


def _hidden_writes(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[bool]:
    statistics = ("running_mean", "running_var")
    if schema.name == "aten::batch_norm_update_stats":
        return [argument.name in statistics for argument in schema.arguments]
    notes = torch._C._SchemaInfo(schema)
    names = [argument.name for argument in schema.arguments]
    if "training" in names:
        position = names.index("training")
        notes.add_argument_value("training", args[position] if position < len(args) else kwargs["training"])
    return [notes.is_mutable(name) for name in names]


def hides_from_autograd(node: fx.Node) -> bool:
    """Tell whether a node turns gradients off for the ones after it, or makes an alias without history."""
    return node.target in _HIDING


_HIDING = frozenset(
    {
        torch._C._set_grad_enabled,
        getattr(torch._C._autograd, "_get_data_attr", None),  # tensor.data
        torch.Tensor.detach,
        torch.detach,
        "detach",
    }
)


def is_refused_view(error: BaseException) -> bool:
    """Tell whether AOTAutograd failed since autograd or functionalization refuses a write to a view."""
    message = str(error)
    return isinstance(error, RuntimeError) and (
        "encountered a mutation on a view chain" in message
        or "A view was created in no_grad mode" in message
        or "is a view and is being modified inplace" in message
    )


def forget_metadata() -> None:
    """Forget what AOTAutograd noted of the last graph, so that `changed_inputs` speaks of the next one."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None:
        context.fw_metadata = None


def changed_inputs(gm: torch.nn.Module, count: int) -> frozenset[int] | None:
    """Return the positions of the inputs that AOTAutograd saw the graph just compiled change.

    None where it left no notes (without Dynamo) or notes on other inputs (of unwrapped subclasses).

    Args:
        gm: The graph. Its parameters and buffers come before the inputs.
        count: How many inputs it has.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    notes = getattr(getattr(context, "fw_metadata", None), "input_info", None)
    lifted = len(list(gm.parameters())) + len(list(gm.buffers()))
    if notes is None or len(notes) != lifted + count:
        return None
    changes = enumerate(notes[lifted:])
    return frozenset(i for i, note in changes if note.mutates_data or note.mutates_metadata)


def concrete(value: Any) -> Any:
    """Return the number that a symbolic one stood for when it was traced; anything else as it is."""
    return hint(value) if isinstance(value, torch.SymInt) else value


# --- debugging ---------------------------------------------------------------------------------------------


def compile_id() -> str | None:
    """Return Dynamo's id of the frame being compiled, such as ``"0/1"``, or None outside Dynamo."""
    from torch._guards import CompileContext

    current = CompileContext.current_compile_id()
    return None if current is None else str(current)


def debug_directory() -> str:
    """Return the directory to which ``TORCH_COMPILE_DEBUG=1`` writes."""
    from torch._dynamo.utils import get_debug_dir

    directory: str = get_debug_dir()
    return directory


def trace_artifact(name: str, payload: Callable[[], str]) -> None:
    """Put JSON text into the structured trace of ``TORCH_TRACE``, where this torch has one."""
    trace_structured = getattr(importlib.import_module("torch._logging"), "trace_structured", None)
    if trace_structured is None:
        return
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "json"},
        payload_fn=payload,
    )
