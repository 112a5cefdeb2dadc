"""The only file of this package that touches PyTorch's private interfaces.

What differs between torch 2.9 and 2.15 is told apart by looking for it, never by a version number. Each
function says what it stands for, so that a reader of the other files need not know torch's internals.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import operator
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.graph import CodeGen
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
    ("torch._dynamo.utils", "counters"),
    ("torch._guards", "TracingContext"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    ("torch._C", "_DisableAutocast"),
    ("torch._C", "_is_any_autocast_enabled"),
    ("functorch.compile", "default_partition"),
)


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
    with (
        _compile_lock,
        config.patch(known),
        _backward_with_forward(),
        _nothing_donated(),
        _no_scalar_taken_for_a_float(),
    ):
        yield


def _nothing_donated() -> contextlib.AbstractContextManager[None]:
    # The switch config.donated_buffer is read at compile time and again at run time, where "none were looked
    # for" counts as "some were found" (torch 2.10 to 2.13). So they are looked for, and none is found.
    return _replaced_in_aot_autograd("collect_bw_donated_buffer_idxs", lambda _: lambda *args, **kwargs: [])


def _no_scalar_taken_for_a_float() -> contextlib.AbstractContextManager[None]:
    return _replaced_in_aot_autograd("tensorify_python_scalars", sparing_tensors)


def sparing_tensors(tensorify: Callable[..., Any]) -> Callable[..., Any]:
    """Return AOTAutograd's pass for Dynamo's floats, such that it takes no tensor of the user's for one.

    Dynamo passes a changing Python float as a float64 tensor without dimensions. The pass tells Dynamo to trace
    it again as a constant where that did not help, and takes the user's own such tensors for floats too. Dynamo
    then drops what the graph writes to them (torch 2.10 to 2.13, silently).
    """

    @functools.wraps(tensorify)
    def run(gm: fx.GraphModule, shape_env: Any, *args: Any, **kwargs: Any) -> Any:
        from torch._dynamo import exc
        from torch._dynamo.symbolic_convert import TensorifyState

        before = frozenset(TensorifyState.force_specializations)
        try:
            return tensorify(gm, shape_env, *args, **kwargs)
        except exc.TensorifyScalarRestartAnalysis:
            # Raised as the last thing that the pass does.
            TensorifyState.force_specializations -= _symbols_of_tensors(shape_env)
            if TensorifyState.force_specializations - before:
                raise
            return None

    return run


def keeping_outputs_in_place(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return AOTAutograd's ``create_functionalized_fn``, such that it puts no written input in another output's place.

    It has the graph return an input itself where the graph writes it and returns it, and counts the user's outputs
    without the new values of inputs that come before them (torch 2.10 to 2.13, silently where shapes are equal).
    What the graph returns there is not looked at, so that nothing is lost by not doing it.
    """

    @functools.wraps(create)
    def run(*args: Any, meta: Any, **kwargs: Any) -> Any:
        if meta.num_mutated_inp_runtime_indices:
            meta = copy.copy(meta)
            is_input, alias = output_type("is_input"), output_type("alias_of_input")
            meta.output_info = [
                dataclasses.replace(info, output_type=alias) if info.output_type == is_input else info
                for info in meta.output_info
            ]
        return create(*args, meta=meta, **kwargs)

    return run


def telling_views_apart(collect: Callable[..., Any]) -> Callable[..., Any]:
    """Return AOTAutograd's ``run_functionalized_fw_and_collect_metadata``, such that it knows equal views for two.

    Where nothing requires a gradient, it takes views of one intermediate for outputs that have nothing to do with
    each other. A compiler such as Inductor may then compute equal ones once and return one Python object for both
    (torch 2.10 to 2.13). Known as a view of the first, as it would be with gradients, the second is made anew.
    """

    @functools.wraps(collect)
    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        outputs: list[Any] = []

        @functools.wraps(function)
        def recording(*inputs: Any) -> Any:
            result = function(*inputs)
            described = bool(result) and isinstance(result[0], (tuple, list))
            outputs[:] = result[0] if described else result
            return result

        collect_recorded = collect(recording, *args, **kwargs)

        @functools.wraps(collect_recorded)
        def run_and_collect(*inputs: Any) -> Any:
            try:
                meta = collect_recorded(*inputs)
                if len(outputs) != len(meta.output_info):
                    return meta
                return _with_unrecorded_views(_with_equal_views(meta, outputs), outputs)
            finally:
                outputs.clear()

        return run_and_collect

    return run


def _with_equal_views(meta: Any, outputs: Sequence[Any]) -> Any:
    """Return AOTAutograd's metadata, with an output that is as good as an earlier one known as a view of that."""
    infos = list(meta.output_info)
    first: dict[Any, int] = {}
    for i, (info, output) in enumerate(zip(infos, outputs, strict=True)):
        if info.output_type != output_type("non_alias") or not isinstance(output, torch.Tensor):
            continue
        subclass: bool = is_traceable_wrapper_subclass(output)
        if info.requires_grad or output.layout != torch.strided or subclass:
            continue
        geometry = tuple(output.size()), output.stride(), output.storage_offset(), output.dtype
        if any(map(is_symbolic, pytree.tree_leaves(geometry))):
            continue
        base = first.setdefault((output.untyped_storage()._cdata, geometry), i)
        if base != i and outputs[base] is not output:
            kind = output_type("alias_of_intermediate_base_is_user_output")
            infos[i] = dataclasses.replace(info, output_type=kind, base_idx=base)
    return meta if infos == meta.output_info else dataclasses.replace(meta, output_info=infos)


class UnrecordedView(torch.Tensor):
    """In AOTAutograd's metadata the type of an output that is a view made under ``no_grad``. Has no instances."""


def is_unrecorded_view(value: Any) -> bool:
    """Tell whether something is a view made under ``no_grad``, which requires a gradient and passes none on."""
    if not (isinstance(value, torch.Tensor) and value.requires_grad and value._is_view()):
        return False
    try:
        return value.grad_fn is None
    except RuntimeError:
        return True  # written since, which autograd forbids for such a view


def _with_unrecorded_views(meta: Any, outputs: Sequence[Any]) -> Any:
    """Return AOTAutograd's metadata, by which views made under ``no_grad`` require no gradient; they are marked."""
    kinds = [
        output_type("alias_of_input"),
        output_type("alias_of_intermediate"),
        output_type("alias_of_intermediate_save_as_output"),
        output_type("alias_of_intermediate_base_is_user_output"),
        output_type("unsafe_view_alias"),
        output_type("non_alias"),
    ]
    infos = [
        dataclasses.replace(info, raw_type=UnrecordedView, requires_grad=False)
        if info.output_type in kinds and is_unrecorded_view(output)
        else info
        for info, output in zip(meta.output_info, outputs, strict=True)
    ]
    return meta if infos == meta.output_info else dataclasses.replace(meta, output_info=infos)


def making_unrecorded_views(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return AOTAutograd's ``_create_runtime_wrapper``, such that it makes what `telling_views_apart` has marked.

    AOTAutograd makes a view of what a view made under ``no_grad`` is a view of, and lets gradients through it
    (torch 2.10 to 2.13, silently).
    """

    @functools.wraps(create)
    def run(compiled_fn: Callable[..., Any], *, runtime_metadata: Any, **kwargs: Any) -> Callable[..., Any]:
        wrapped: Callable[..., Any] = create(compiled_fn, runtime_metadata=runtime_metadata, **kwargs)
        infos = {
            i: info for i, info in enumerate(runtime_metadata.output_info) if info.raw_type is UnrecordedView
        }
        if not infos:
            return wrapped
        of_inputs = {
            i: info.base_idx for i, info in infos.items() if info.output_type == output_type("alias_of_input")
        }

        @functools.wraps(wrapped)
        def call(args: list[Any]) -> Any:
            # They are taken out of the list in the call.
            owners = {i: args[base] for i, base in of_inputs.items()}
            outputs = list(wrapped(args))
            for i in infos:
                outputs[i] = unrecorded_view(outputs[i], owners.get(i))
            return outputs

        return call

    return run


def unrecorded_view(output: torch.Tensor, owner: torch.Tensor | None) -> torch.Tensor:
    """Return an alias of a tensor as a view made under ``no_grad`` of what requires a gradient.

    Args:
        output: The elements.
        owner: The input in whose memory they lie, or None.
    """
    with torch.no_grad():
        if owner is not None and owner.dtype == output.dtype:
            return owner.as_strided(output.size(), output.stride(), output.storage_offset())
        # A leaf may be a view too, of a tensor that requires no gradient; then so would its views.
        whole = output.detach().requires_grad_() if output.is_leaf else output
        return whole.view_as(whole)


@contextlib.contextmanager
def inductor_pass(change: Callable[[fx.Graph], None], *, uuid: str) -> Iterator[None]:
    """Have Inductor, where it is loaded, change graphs by this before it brings back the writes to inputs.

    This goes through its documented ``post_grad_custom_post_pass``, which is part of the keys of its caches. What
    others have put there runs first.

    Args:
        change: Changes a graph.
        uuid: Names what it does, and in which version.
    """
    config = sys.modules.get("torch._inductor.config")
    if config is None:
        yield
        return
    module = importlib.import_module("torch._inductor.custom_graph_pass")

    class Pass(module.CustomGraphPass):  # type: ignore[name-defined,misc]
        def __call__(self, graph: fx.Graph) -> None:
            change(graph)

        def uuid(self) -> Any:
            return uuid

    class AfterAnother(Pass):
        def __call__(self, graph: fx.Graph) -> None:
            earlier(graph)
            change(graph)

        def uuid(self) -> Any:
            # A plain function has none, and neither have both then: that keeps the results out of the caches.
            known = earlier.uuid() if hasattr(earlier, "uuid") else None
            return None if known is None else (known, uuid)

    earlier = config.post_grad_custom_post_pass
    several = getattr(module, "get_custom_graph_passes", None)  # a list of passes may be given too
    passes: Any = AfterAnother() if earlier else Pass()
    with (
        _compile_lock,
        config.patch(post_grad_custom_post_pass=[*several(earlier), Pass()] if several else passes),
    ):
        yield


def with_stride_order(value: fx.Node) -> fx.Node:
    """Add to Inductor's graph what keeps a value's dimensions in the order in which they lie in memory."""
    importlib.import_module("torch._inductor.inductor_prims")
    order = torch.ops.prims.inductor_force_stride_order.default
    return value.graph.call_function(order, (value, list(value.meta["val"].stride())))


def forward_returns() -> int | None:
    """Return how many values the forward of the graph under way returns besides what it saves, if that is known."""
    count: int | None = getattr(_last_metadata(), "num_forward_returns", None)
    return count


def _symbols_of_tensors(shape_env: Any) -> set[str]:
    """Return the names of the symbols that stand for a tensor's element."""
    from torch._dynamo.source import CallMethodItemSource

    # A float's source is that of the float, although it is passed as a tensor.
    sources = shape_env.var_to_sources.items()
    return {str(symbol) for symbol, known in sources if known and isinstance(known[0], CallMethodItemSource)}


@contextlib.contextmanager
def _backward_with_forward() -> Iterator[None]:
    # Up to torch 2.9 there is no switch: the parameter of the function that fills in AOTAutograd's settings is
    # not reachable from its caller.
    from torch._functorch import config

    module = importlib.import_module("torch._functorch.aot_autograd")
    switch, name = "force_non_lazy_backward_lowering", "prepare_aot_module_simplified"
    prepare = getattr(module, name, None)
    if hasattr(config, switch) or prepare is None:
        yield
        return
    setattr(module, name, functools.partial(prepare, **accepted(prepare, {switch: True})))
    try:
        yield
    finally:
        setattr(module, name, prepare)


@contextlib.contextmanager
def _replaced_in_aot_autograd(
    name: str, replacement: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace a function where AOTAutograd looks it up, if this torch has it there."""
    module = importlib.import_module("torch._functorch._aot_autograd.graph_compile")
    original = getattr(module, name, None)
    if original is None:
        yield
        return
    setattr(module, name, replacement(original))
    try:
        yield
    finally:
        setattr(module, name, original)


def compile_with_aot_autograd(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Call torch's ``aot_module_simplified``: trace, partition, hand the graphs to the compilers.

    Returns a function of the flat inputs, one by one.
    """
    compile_graph = aot_autograd_entry()
    # What `analysis.install` puts there is for others' graphs: in ours no input shares memory.
    compile_graph = getattr(compile_graph, "__wrapped__", compile_graph)
    compiled: Callable[..., Any] = compile_graph(gm, example_inputs, **kwargs)
    return compiled


def aot_autograd_entry() -> Callable[..., Any]:
    """Return torch's ``aot_module_simplified``, by which backends call AOTAutograd."""
    entry: Callable[..., Any] = importlib.import_module("torch._functorch.aot_autograd").aot_module_simplified
    return entry


@dataclasses.dataclass(frozen=True)
class Tangent:
    """A value that a compiled function returns, and whose gradient its backward takes.

    Args:
        written_input: Position of the input whose new contents it is, or None.
        outputs: Positions of the graph's outputs that it is, or that are views of it.
    """

    written_input: int | None
    outputs: tuple[int, ...] = ()


@contextlib.contextmanager
def watching_compiled_functions(
    found: Callable[[type[torch.autograd.Function], dict[int, Tangent]], None],
) -> Iterator[None]:
    """Hand over each autograd function that AOTAutograd makes, and the positions of the tangents in what it returns.

    Those of tensor subclasses are not: autograd alone makes zeros of their types.
    """
    wrapper = importlib.import_module("torch._functorch._aot_autograd.runtime_wrappers").RuntimeWrapper
    original = wrapper.post_compile

    @functools.wraps(original)
    def post_compile(self: Any, compiled: Any, *args: Any, runtime_metadata: Any, **kwargs: Any) -> Any:
        function: Any = getattr(compiled, "__self__", None)  # of the method `apply`
        is_compiled = isinstance(function, type) and issubclass(function, torch.autograd.Function)
        if is_compiled and getattr(function, "maybe_subclass_metadata", None) is None:
            found(function, _tangents(runtime_metadata))
        return original(self, compiled, *args, runtime_metadata=runtime_metadata, **kwargs)

    wrapper.post_compile = post_compile
    try:
        yield
    finally:
        wrapper.post_compile = original


def _tangents(metadata: Any) -> dict[int, Tangent]:
    """Return the tangents of a compiled function by their positions in what it returns.

    It returns inputs that are to be overwritten, then the outputs, then the intermediate values that outputs are
    views of.
    """
    written = list(metadata.mutated_inp_runtime_indices)
    tangents = {
        k: Tangent(i)
        for k, i in enumerate(written)
        if metadata.input_info[i].mutates_data and metadata.input_info[i].requires_grad
    }
    views: dict[int, list[int]] = {}
    for i, output in enumerate(metadata.output_info):
        kind = output.output_type.name
        needed = getattr(output, "requires_grad_for_backward", output.requires_grad)
        if kind in ("non_alias", "unsafe_view_alias", "custom_function_view"):
            if needed and issubclass(output.raw_type, torch.Tensor):
                tangents[len(written) + i] = Tangent(None, (i,))
        elif kind in ("alias_of_intermediate", "alias_of_intermediate_save_as_output"):
            views.setdefault(output.base_idx, []).append(i)
    first = len(written) + len(metadata.output_info)
    tangents.update({first + k: Tangent(None, tuple(outputs)) for k, outputs in views.items()})
    return tangents


def default_partition(
    joint: fx.GraphModule, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Save for the backward what eager autograd would save."""
    partition = importlib.import_module("functorch.compile").default_partition
    _describe_tensors_(joint)
    kwargs = accepted(partition, {"num_fwd_outputs": num_fwd_outputs, **kwargs})
    parts: tuple[fx.GraphModule, fx.GraphModule] = partition(joint, joint_inputs, **kwargs)
    return parts


def _describe_tensors_(gm: fx.GraphModule) -> None:
    # Up to torch 2.9 the partitioner knows a tensor by this note, and numbers that Dynamo has made tensors lack it.
    describe = importlib.import_module("torch.fx.passes.shape_prop")._extract_tensor_metadata
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and "tensor_meta" not in node.meta:
            node.meta["tensor_meta"] = describe(value)


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
    from torch.fx import graph

    made_by_torch = getattr(graph, "_BoxedCodeGen", None)  # from torch 2.10
    return _BoxedCode() if made_by_torch is None else made_by_torch()


class _BoxedCode(CodeGen):
    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        # Each is a name, perhaps with a type or a default behind it.
        names = [re.split("[:=]", variable)[0].strip() for variable in free_vars if variable != "self"]
        head: str = super().gen_fn_def(["boxed_"], maybe_return_annotation)
        unpacked = "".join(f"{name}, " for name in names)
        return f"{head}\n    {unpacked}= boxed_; boxed_.clear()" if names else head


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


def is_opaque(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's device shows no memory: no address, and strides and offset that mean nothing.

    Every tensor of XLA claims to be contiguous and to begin where its storage does, views too.
    """
    return tensor.device.type == "xla"


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


def hides_from_autograd(node: fx.Node) -> bool:
    """Tell whether a node turns gradients off for the ones after it, or makes an alias without history."""
    return node.target in _HIDING


def turns_gradients_on(node: fx.Node) -> bool:
    """Tell whether a node turns gradients on for the ones after it."""
    return node.target is torch._C._set_grad_enabled and node.args[0] is True


_HIDING = frozenset(
    {
        torch._C._set_grad_enabled,
        getattr(torch._C._autograd, "_get_data_attr", None),  # tensor.data
        torch.Tensor.detach,
        torch.detach,
        "detach",
    }
)


def is_refused_write(error: BaseException) -> bool:
    """Tell whether AOTAutograd failed since autograd or functionalization refuses a write."""
    message = str(error)
    return isinstance(error, RuntimeError) and (
        "encountered a mutation on a view chain" in message
        or "A view was created in no_grad mode" in message
        or "is a view and is being modified inplace" in message
        or "has been modified by an inplace operation" in message
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
    notes = getattr(_last_metadata(), "input_info", None)
    lifted = len(list(gm.parameters())) + len(list(gm.buffers()))
    if notes is None or len(notes) != lifted + count:
        return None
    changes = enumerate(notes[lifted:])
    return frozenset(i for i, note in changes if note.mutates_data or note.mutates_metadata)


def returns_views_of_written_inputs() -> bool:
    """Tell whether AOTAutograd saw the graph just compiled return a view of an input that it writes."""
    metadata = _last_metadata()
    return metadata is not None and any(
        note.output_type.name == "alias_of_input" and metadata.input_info[note.base_idx].mutates_data
        for note in metadata.output_info
    )


def _last_metadata() -> Any:
    from torch._guards import TracingContext

    return getattr(TracingContext.try_get(), "fw_metadata", None)


def is_symbolic(value: Any) -> bool:
    """Tell whether a value is a symbolic number, or a tensor with symbolic sizes, strides or offset."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, torch.SymInt)
    numbers = (
        (*value.size(), *value.stride(), value.storage_offset()) if value.layout is torch.strided else ()
    )
    return any(isinstance(n, torch.SymInt) for n in numbers)


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


# --- explaining --------------------------------------------------------------------------------------------


def with_lazy_bits(tensor: torch.Tensor, *, like: torch.Tensor) -> torch.Tensor:
    """Return a view that is conjugated and negated on reading where another tensor is."""
    if like.is_conj() != tensor.is_conj():
        tensor = torch._conj(tensor)
    if like.is_neg() != tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return tensor


def copied_storage(storage: Any) -> Any:
    """Return a storage with the same bytes, if it has any: one on the device "meta" has none."""
    if storage.device.type == "meta":
        return torch.UntypedStorage(storage.nbytes(), device="meta")  # type: ignore[no-untyped-call]
    return storage.clone()


def copy_view_rules(source: torch.Tensor, target: torch.Tensor) -> None:
    """Let operations in place be legal on a view where they are on another: one made under ``no_grad``, or one of
    several results of ``split``, forbids some of them.
    """
    if source._is_view() and target._is_view() and not source.is_inference():
        autograd = torch._C._autograd
        autograd._set_creation_meta(target, autograd._get_creation_meta(source))


def find_backend(name: str) -> Any:
    """Return what ``torch.compile(backend=name)`` would call."""
    return importlib.import_module("torch._dynamo").lookup_backend(name)


def uncompiled(function: Any) -> Any:
    """Return the function or module that ``torch.compile`` was given, for one that it returned."""
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    if isinstance(function, eval_frame.OptimizedModule):
        return function._orig_mod
    innermost = eval_frame.innermost_fn(function)
    return innermost


def source_of_input(node: fx.Node) -> str | None:
    """Return Dynamo's expression for the value of an input node, such as ``"L['x']"``."""
    source = getattr(node, "_dynamo_source", None)
    # A method up to torch 2.9, a property since.
    name = getattr(source, "name", None)
    name = name() if callable(name) else name
    return name if isinstance(name, str) else None


def fake_twin(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor with all that a tensor has but its elements.

    Twins made under one mode share memory, are views of each other, and are one tensor where the originals are.
    """
    twin: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
    return twin


class DynamoKept:
    """What was left as it was, and what Dynamo said meanwhile; see `dynamo_kept`.

    Attributes:
        breaks: Reason and (file, line) of each graph break.
    """

    def __init__(self) -> None:
        self.breaks: list[tuple[str, tuple[str, int] | None]] = []


@contextlib.contextmanager
def dynamo_kept() -> Iterator[DynamoKept]:
    """Compile something aside: at the end, Dynamo has forgotten it.

    What is compiled inside is taken out of the caches of the code that it was compiled for, which other compiled
    functions may share; counters, graph breaks and the sizes on which Dynamo bases dynamic shapes are put back.
    """
    utils = importlib.import_module("torch._dynamo.utils")
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    caches = _CodeCaches()
    kept = DynamoKept()
    counters = {name: dict(counter) for name, counter in utils.counters.items()}
    num_breaks = len(utils.graph_break_reasons)
    with _fresh_shape_history():
        hook = convert_frame.register_bytecode_hook(caches.note)
        try:
            yield kept
        finally:
            hook.remove()
            for reason in utils.graph_break_reasons[num_breaks:]:
                frame = reason.user_stack[-1] if reason.user_stack else None
                entry = (reason.reason, None if frame is None else (frame.filename, frame.lineno))
                if entry not in kept.breaks:
                    kept.breaks.append(entry)
            del utils.graph_break_reasons[num_breaks:]
            caches.restore()
            utils.counters.clear()
            for name, counter in counters.items():
                utils.counters[name].update(counter)


class _CodeCaches:
    """The compiled entries of each code object that something is compiled for."""

    def __init__(self) -> None:
        self._eval_frame = importlib.import_module("torch._C._dynamo.eval_frame")
        self._before: dict[int, tuple[Any, list[Any]]] = {}

    def note(self, code: Any, transformed: Any) -> None:
        # Called before the new entry is added.
        if id(code) not in self._before:
            self._before[id(code)] = (code, self._guards(code))

    def restore(self) -> None:
        guards = importlib.import_module("torch._dynamo.guards")
        for code, before in self._before.values():
            if not before:
                self._eval_frame.reset_code(code)
                continue
            for entry in self._eval_frame._debug_get_cache_entry_list(code):
                manager = entry.guard_manager
                if any(manager is known for known in before):
                    continue
                deleted = guards.DeletedGuardManagerWrapper("made by explain()")
                # An entry can't be taken out of the list. This one matches no call; nor, by the note that it
                # is about an object that no frame holds, does it count against the limit of recompilations.
                deleted.id_matched_objs = {"": weakref.ref(self._eval_frame.__class__)}
                manager.extra_state.invalidate(manager.cache_entry, deleted)

    def _guards(self, code: Any) -> list[Any]:
        return [entry.guard_manager for entry in self._eval_frame._debug_get_cache_entry_list(code)]


@contextlib.contextmanager
def _fresh_shape_history() -> Iterator[None]:
    module: Any = importlib.import_module("torch._dynamo.pgo")
    if not hasattr(module, "_CODE_STATE") or not hasattr(module, "CodeState"):
        yield
        return
    before = module._CODE_STATE
    module._CODE_STATE = collections.defaultdict(module.CodeState)
    try:
        yield
    finally:
        module._CODE_STATE = before


# --- AOTAutograd's metadata: what a function does to its inputs --------------------------------------------


def input_output_analysis() -> Any:
    """Return the module in which torch keeps its analyses of a function's inputs and outputs."""
    return importlib.import_module("torch._functorch._aot_autograd.input_output_analysis")


def importers_of_the_analyses() -> list[Any]:
    """Return torch's modules that hold, or will look up, those analyses or the key of AOTAutograd's cache."""
    home = "torch._functorch._aot_autograd"
    # Dynamo first: the others import it, and it them, which works only in this order.
    for name in (
        "torch._dynamo",
        "torch._functorch.aot_autograd",
        f"{home}.runtime_wrappers",
        f"{home}.autograd_cache",
        f"{home}.input_output_analysis",
    ):
        importlib.import_module(name)
    loaded = list(sys.modules.items())
    return [module for name, module in loaded if name.split(".")[0] == "torch" and module is not None]


def repaired_functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return functions of AOTAutograd → the same, repaired. Those that this torch lacks are left out."""
    found: dict[Callable[..., Any], Callable[..., Any]] = {}
    for home, name, repair in (
        ("graph_compile", "tensorify_python_scalars", sparing_tensors),
        ("graph_capture", "create_functionalized_fn", keeping_outputs_in_place),
        ("collect_metadata_analysis", "run_functionalized_fw_and_collect_metadata", telling_views_apart),
        ("runtime_wrappers", "_create_runtime_wrapper", making_unrecorded_views),
    ):
        stock = getattr(importlib.import_module(f"torch._functorch._aot_autograd.{home}"), name, None)
        if stock is not None:
            found[stock] = repair(stock)
    return found


def autograd_cache_key() -> Callable[..., Any] | None:
    """Return the function that computes the key of AOTAutograd's cache, if this torch has it."""
    module = importlib.import_module("torch._functorch._aot_autograd.autograd_cache")
    found: Callable[..., Any] | None = getattr(module, "autograd_cache_key", None)
    return found if hasattr(torch.compiler.config, "cache_key_tag") else None


@contextlib.contextmanager
def cache_key_tag(tag: str) -> Iterator[None]:
    """Add to torch's documented ``torch.compiler.config.cache_key_tag``, part of every cache key."""
    config = torch.compiler.config
    with config.patch(cache_key_tag=f"{config.cache_key_tag}{tag}"):  # type: ignore[attr-defined]
        yield


def output_info(**fields: Any) -> Any:
    """Make an ``OutputAliasInfo``: how one output relates to the inputs. Fields that this torch lacks are left out."""
    schemas = importlib.import_module("torch._functorch._aot_autograd.schemas")
    return schemas.OutputAliasInfo(**accepted(schemas.OutputAliasInfo, fields))


def output_type(name: str) -> Any:
    """Return the kind of output of that name, such as ``"alias_of_input"``."""
    return getattr(importlib.import_module("torch._functorch._aot_autograd.schemas").OutputType, name)


def functional_tensor_type() -> type:
    """Return the class that stands for a tensor while AOTAutograd makes a function functional."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    return FunctionalTensor


def tangent_of_updated_input(value: Any, description: Any) -> tuple[Any, Any]:
    """Return the tangent to trace with for an input that the graph writes, and its description.

    The tangent has the value's size and strides, or its memory format where those are symbolic.
    """
    collect = importlib.import_module("torch._functorch._aot_autograd.collect_metadata_analysis")
    descriptors = importlib.import_module("torch._functorch._aot_autograd.descriptors")
    tangent = collect.coerce_tangent_and_suggest_memory_format(value)[0]
    return tangent, descriptors.TangentAOTInput(descriptors.InputMutationAOTOutput(description))


def tensor_layouts(values: Sequence[Any], *, tangents: bool = False) -> list[Any]:
    """Describe how a flat list of values packs tensor subclasses; of tangents, the memory format too."""
    utils = importlib.import_module("torch._functorch._aot_autograd.subclass_utils")
    options: dict[str, Any] = {"count_symints": False, "with_memory_format": True} if tangents else {}
    layouts: list[Any] = utils.create_subclass_meta(list(values), **options)
    return layouts


def is_wrapper_subclass(value: Any) -> bool:
    """Tell whether a value is a tensor made of other tensors, which AOTAutograd takes apart."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(value)


def autograd_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that autograd knows this one to be a view of."""
    return tensor._base


def is_concrete(size: Any) -> bool:
    """Tell whether a size is a number rather than a symbol that may stand for others."""
    from torch.fx.experimental.symbolic_shapes import is_concrete_int

    return is_concrete_int(size)


def overlapping(tensors: Sequence[torch.Tensor], *, symbolic: bool) -> set[int]:
    """Return torch's verdict on which tensors of one storage overlap another: their positions in the list.

    The ``StorageOverlap`` guard asks the same function at run time. It takes all to have one dtype.
    """
    compute = importlib.import_module("torch._C._dynamo.guards").compute_overlapping_tensors
    positions: set[int] = compute(list(tensors), symbolic=symbolic)
    return positions


def tracing_context() -> Any:
    """Return the context of the trace under way, which collects guards, or None."""
    from torch._guards import TracingContext

    return TracingContext.try_get()


def guard_storage_overlap(context: Any, overlapping: list[Any], separate: list[Any]) -> None:
    """Have the compiled code checked at each call: these overlap, and those do not."""
    from torch._guards import StorageOverlap

    context.guards_context.aotautograd_guards.append(StorageOverlap(overlapping, separate))


def backward_signature(
    gradients_to_parameters: dict[str, str], gradients_to_user_inputs: dict[str, str], loss_output: str
) -> Any:
    """Make a ``BackwardSignature`` of an exported joint graph."""
    schemas = importlib.import_module("torch._functorch._aot_autograd.schemas")
    return schemas.BackwardSignature(
        gradients_to_parameters=gradients_to_parameters,
        gradients_to_user_inputs=gradients_to_user_inputs,
        loss_output=loss_output,
    )


def graph_signature(**fields: Any) -> Any:
    """Make a ``GraphSignature`` from the names in a graph and the metadata of its tracing."""
    schemas = importlib.import_module("torch._functorch._aot_autograd.schemas")
    return schemas.GraphSignature.from_tracing_metadata(**fields)


# --- schemas of operators ----------------------------------------------------------------------------------


def is_higher_order(target: Any) -> bool:
    """Tell whether a node's target is an operator that takes operators or graphs."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_overload_packet(target: Any) -> bool:
    """Tell whether a node's target is a name of several operators, such as ``torch.ops.aten.add``."""
    return isinstance(target, torch._ops.OpOverloadPacket)


def written_argument_names(op: Any, values: dict[str, Any]) -> set[str]:
    """Return the names of the arguments that a call writes, those included that the schema does not mark.

    Batch norm writes its running statistics only if ``training`` is among the values and true, or is not given.
    """
    info = torch._C._SchemaInfo(op._schema)
    info.add_argument_values(values)
    return {argument.name for argument in op._schema.arguments if info.is_mutable(argument.name)}


def may_alias_unmarked(op: Any) -> bool:
    """Tell whether an operator may return its argument, or a view of it, though its schema does not say so.

    torch has one tag for this and for writes that the schema hides; batch norm has it for the latter.
    """
    tag = getattr(torch.Tag, "maybe_aliasing_or_mutating", None)
    return tag is not None and tag in op.tags and not written_argument_names(op, {})


def viewed_by(node: fx.Node) -> fx.Node | None:
    """Return what a node of a traced graph is a view of, or part of views of; None if it is no view."""
    source = node.args[0] if node.args else None
    if node.op != "call_function" or not isinstance(source, torch.fx.Node):
        return None
    if node.target is operator.getitem:
        return source if viewed_by(source) is not None else None
    schema = getattr(node.target, "_schema", None)
    alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return source if alias is not None and not alias.is_write else None


def changes_metadata(op: Any) -> bool:
    """Tell whether an operator changes sizes, strides or storage of what it writes, rather than its data."""
    return torch.Tag.inplace_view in op.tags


def only_reshapes(op: Any) -> bool:
    """Tell whether an operator makes its tensor another view of the same memory, such as ``t_``."""
    return changes_metadata(op) and op.overloadpacket.__name__ not in ("resize_", "resize_as_", "set_")


# Calls in a traced graph that change a mode of the thread and no tensor.
MODE_NODES = (*AUTOCAST_NODES, torch._C._set_grad_enabled)


def is_size_function(target: Any) -> bool:
    """Tell whether a node's target is torch's arithmetic on symbolic sizes, such as ``torch.sym_max``."""
    name = getattr(target, "__name__", "")
    return name.startswith(("sym_", "_sym_")) and getattr(torch, name, None) is target


# --- torch's own tests ---------------------------------------------------------------------------------------


def op_database_module() -> Any:
    """Return the module of torch's tests that holds the database of operators."""
    return importlib.import_module("torch.testing._internal.common_methods_invocations")
