"""The only file of this package that touches PyTorch's private interfaces.

What differs between torch 2.10 and 2.15 is told apart by looking for it, never by a version number. Each
function says what it stands for, so that a reader of the other files need not know torch's internals.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

__all__ = ["CustomPartitionerFn", "pytree"]

REQUIRED = (
    ("torch._functorch.partitioners", "get_default_op_list"),
    ("torch._functorch.config", "patch"),
    ("torch._functorch._aot_autograd.descriptors", "SavedForBackwardsAOTOutput"),
    ("torch._inductor.custom_graph_pass", "CustomPartitionerFn"),
    ("torch._prims.rng_prims", "run_and_save_rng_state"),
    ("torch.fx.experimental.symbolic_shapes", "free_symbols"),
    ("torch.fx._lazy_graph_module", "_make_graph_module"),
    ("torch._prims_common", "elementwise_dtypes"),
)


def _private(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name, None)


# --- nodes of a joint graph --------------------------------------------------------------------------------


@functools.cache
def _node_types() -> tuple[type, tuple[type, ...], Callable[[Any], bool] | None]:
    backward_state = _private("torch.fx.experimental._backward_state", "BackwardState")
    script_object = _private("torch._library.fake_class_registry", "FakeScriptObject")
    return (
        backward_state,
        (script_object,),
        _private("torch._functorch._aot_autograd.graph_compile", "is_opaque_node"),
    )


def is_backward_state(value: Any) -> bool:
    """Tell whether a placeholder stands for what hooks of the backward will need."""
    return isinstance(value, _node_types()[0])


def is_fake_script_object(value: Any) -> bool:
    """Tell whether a value stands for a TorchScript object."""
    return isinstance(value, _node_types()[1])


def is_opaque(node: fx.Node) -> bool:
    """Tell whether AOTAutograd passes a node's value to the backward as neither tensor nor number.

    Such values are known from torch 2.11 on; before, they can't be saved.
    """
    test = _node_types()[2]
    return test is not None and bool(test(node))


def storage_of(tensor: torch.Tensor) -> tuple[int, Any] | None:
    """Return the identity of a tensor's storage and its size in bytes, or None if it has none.

    The size may be symbolic.
    """
    try:
        storage = tensor.untyped_storage()
    except NotImplementedError:
        return None
    return storage._cdata, storage.nbytes()


@functools.cache
def _hint_function() -> Callable[..., Any]:
    module = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    function: Callable[..., Any] = getattr(module, "optimization_hint", None) or module.hint_int
    return function


def size_hint(size: Any) -> int:
    """Return a size as a number: what tracing saw, for a symbolic one, or 4096 if it saw nothing."""
    return size if type(size) is int else int(_hint_function()(size, fallback=4096))


def free_symbols(value: Any) -> set[Any]:
    """Return the symbols in the sizes, strides and offset of a value."""
    found: set[Any] = importlib.import_module("torch.fx.experimental.symbolic_shapes").free_symbols(value)
    return found


def bound_symbol(node: fx.Node) -> Any:
    """Return the symbol whose value a node is, or None."""
    module = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    return module.is_symbol_binding_fx_node(node)


def expression(value: Any) -> Any:
    """Return the expression behind a symbolic number; it is equal for equal numbers."""
    return value.node.expr


_WRITES_BY_NAME = re.compile(r"(?<!_)_$|(^|_)(set|enter|exit|seed)(_|$)")


def is_mutation(node: fx.Node) -> bool:
    """Tell whether a node writes one of its arguments, or a state, by its schema or by its name."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    if getattr(torch.ops.higher_order, "auto_functionalized", None) is target:
        return False
    return bool(_WRITES_BY_NAME.search(getattr(target, "__name__", ""))) or node.kwargs.get("out") is not None


def has_effect(node: fx.Node) -> bool:
    """Tell whether a node has effects that are ordered by tokens."""
    return bool(_private("torch._functorch._aot_autograd.utils", "is_with_effects")(node))


def is_mutable_schema(target: Any) -> bool:
    """Tell whether an operator declares that it writes one of its arguments."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """Return the nodes that an operator writes, by its schema."""
    written = []
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            written += list(given if isinstance(given, (list, tuple)) else [given])
    return [x for x in written if isinstance(x, fx.Node)]


def argument_of(node: fx.Node, name: str, *, default: Any) -> Any:
    """Return what an operator is called with for a parameter: given, by its schema's default, or ``default``."""
    if name in node.kwargs:
        return node.kwargs[name]
    if not isinstance(node.target, torch._ops.OpOverload):
        return default
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            return node.args[place] if place < len(node.args) else argument.default_value
    return default


def is_overload(target: Any) -> bool:
    """Tell whether a target is an operator of torch with its overload: ``aten.add.Tensor``."""
    return isinstance(target, torch._ops.OpOverload)


def is_packet(op: Any) -> bool:
    """Tell whether something is an operator of torch with all its overloads: ``aten.add``."""
    return isinstance(op, torch._ops.OpOverloadPacket)


def is_higher_order(target: Any) -> bool:
    """Tell whether a target is an operator that calls graphs or other operators."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def returns_nothing(target: Any) -> bool:
    """Tell whether an operator has no result, as assertions do."""
    return isinstance(target, torch._ops.OpOverload) and not target._schema.returns


def is_known_operator(op: Any) -> bool:
    """Tell whether something is what ``recomputable_ops`` may hold."""
    return isinstance(op, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)) or (
        callable(op) and op in torch_op_classes().recomputable_ops
    )


def random_packets() -> frozenset[Any]:
    """Return the operators that torch never merges, though some carry no tag that says they are random."""
    return frozenset(_private("torch._functorch.compile_utils", "rand_ops") or ())


_UNTAGGED = ("cauchy", "exponential", "geometric", "log_normal", "uniform")


def draws_numbers(target: Any) -> bool:
    """Tell whether an operator draws random numbers, whether or not torch tags it so."""
    if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        return True
    packet = getattr(target, "overloadpacket", target)
    return packet in random_packets() or getattr(packet, "__name__", "").rstrip("_") in _UNTAGGED


# --- memory ------------------------------------------------------------------------------------------------


def plain_tensors(tensor: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold the data of a tensor: of a wrapper subclass its inner ones."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from plain_tensors(getattr(tensor, name))


def allocation_events(profiler: Any) -> list[tuple[str, int]]:
    """Return what a profiler with ``profile_memory=True`` saw, in order of time.

    Returns:
        The name of what began, and 0; or, for what the CPU allocator handed out, ``""`` and the bytes,
        negative when taken back.
    """
    found: list[tuple[int, str, int]] = []
    pending = list(profiler.profiler.kineto_results.experimental_event_tree())
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        size = getattr(event.extra_fields, "alloc_size", None)
        if size is None:
            found.append((event.start_time_ns, event.name, 0))
        elif event.extra_fields.device.type == "cpu":
            found.append((event.start_time_ns, "", size))
    found.sort(key=lambda each: each[0])
    return [(name, size) for _, name, size in found]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors with a storage in a structure of values."""
    leaves = pytree.tree_leaves(value)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.layout is torch.strided]


def no_modes() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which operations run for real, whatever trace is under way."""
    context: contextlib.AbstractContextManager[Any] = _disable_current_modes()
    return context


# --- the policy of torch's own partitioner -----------------------------------------------------------------


@functools.cache
def torch_op_classes() -> Any:
    """Return the operator lists of torch's min-cut partitioner."""
    return _private("torch._functorch.partitioners", "get_default_op_list")()


def functorch_config() -> Any:
    """Return the module with the settings of torch's partitioner."""
    return importlib.import_module("torch._functorch.config")


def counts_as_non_builtin(node: fx.Node) -> bool:
    """Tell whether torch refuses to recompute a node because it calls a custom operator."""
    return bool(_private("torch._functorch.partitioners", "is_non_builtin_to_include")(node))


def mutable_arguments(target: Any) -> Sequence[str]:
    """Return the names of the arguments that an ``auto_functionalized`` operator writes."""
    names, _ = _private("torch._higher_order_ops.auto_functionalize", "get_mutable_args")(target)
    return tuple(names)


def region_budget(node: fx.Node) -> float | None:
    """Return the activation budget that a user's region gives to a node (torch 2.13 and later)."""
    read = _private("torch.fx.traceback", "_get_memory_budget_annotation")
    return None if read is None else read(node)


# --- the two graphs of a partition -------------------------------------------------------------------------


def make_graph_module(root: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """Wrap a graph, with what it refers to in ``root``. Its code is generated now or later, as torch is set."""
    make: Callable[..., fx.GraphModule] = _private("torch.fx._lazy_graph_module", "_make_graph_module")
    return make(root, graph)


def saved_descriptor(position: int, *, version_checked: bool) -> Any:
    """Return AOTAutograd's description of a forward output that is saved for the backward."""
    module = importlib.import_module("torch._functorch._aot_autograd.descriptors")
    unchecked = getattr(module, "SavedForBackwardsNoVcCheckAOTOutput", None)
    if version_checked or unchecked is None:
        return module.SavedForBackwardsAOTOutput(position)
    return unchecked(position)


def run_and_save_rng_state() -> Any:
    """Return the operator ``(op, *args) -> (state before, op(*args))``."""
    return _private("torch._prims.rng_prims", "run_and_save_rng_state")


def run_with_rng_state() -> Any:
    """Return the operator ``(state, op, *args) -> op(*args)`` drawn from that state."""
    return _private("torch._prims.rng_prims", "run_with_rng_state")


def fake_rng_state(like: Any) -> torch.Tensor:
    """Return what stands for the state of the generator of a device, in the fake mode of ``like``.

    Args:
        like: The value of a random node: a fake tensor, or a tuple of them.
    """
    candidates = like if isinstance(like, (tuple, list)) else (like,)
    tensor = next(value for value in candidates if isinstance(value, torch.Tensor))
    mode = getattr(tensor, "fake_mode", None)
    # Read with fake tensors out of the way: it is the real state whose size is looked at.
    unset = _private("torch._subclasses.fake_tensor", "unset_fake_temporarily")
    with unset():
        device = tensor.device
        state = (
            torch.get_rng_state()
            if device.type == "cpu"
            else getattr(torch, device.type).get_rng_state(device)
        )
    return state if mode is None else mode.from_tensor(state)


def knapsack(graph: fx.Graph, nodes: Sequence[fx.Node], sizes: Sequence[float], capacity: float) -> list[int]:
    """Let torch's solver choose which values to recompute; return their numbers among ``nodes``."""
    module = importlib.import_module("torch._functorch.partitioners")
    runtimes = [module.estimate_runtime(node) for node in nodes]
    with _private("torch.utils._mode_utils", "no_dispatch")():
        _, _, recomputed = module._optimize_runtime_with_given_memory(
            graph, list(sizes), runtimes, max(capacity, 0), None, list(nodes)
        )
    return list(recomputed)


# --- fusions -----------------------------------------------------------------------------------------------


@functools.cache
def _promotions() -> tuple[Callable[..., Any], dict[str, Any]]:
    module = importlib.import_module("torch._prims_common")
    kinds = module.ELEMENTWISE_TYPE_PROMOTION_KIND
    named = {"common": kinds.DEFAULT, "float": kinds.INT_TO_FLOAT, "power": kinds.BOOL_TO_LONG}
    return module.elementwise_dtypes, named


def promoted(*values: Any, to: str) -> torch.dtype:
    """Return the dtype of an elementwise operation's result, by torch's rules of promotion.

    Args:
        values: Its operands: tensors and numbers.
        to: ``"common"`` to the one that they have in common; ``"float"``, which makes a float of integers;
            ``"power"``, which makes an integer of booleans.
    """
    function, kinds = _promotions()
    _, dtype = function(*values, type_promotion_kind=kinds[to])
    result: torch.dtype = dtype
    return result


def may_alias(target: Any) -> bool:
    """Tell whether a result of an operator may lie in the memory of an argument, by its schema."""
    return not isinstance(target, torch._ops.OpOverload) or any(
        result.alias_info is not None for result in target._schema.returns
    )


def is_view_operator(target: Any) -> bool:
    """Tell whether an operator returns its argument's memory under other sizes or strides."""
    return isinstance(target, torch._ops.OpOverload) and bool(target.is_view)


def is_lazily_negated(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's elements are the negatives of what its memory holds."""
    return tensor.is_neg() or tensor.is_conj()


# --- the backend -------------------------------------------------------------------------------------------


def decompositions(name: str) -> dict[Any, Callable[..., Any]]:
    """Return a table of decompositions: ``"none"``, ``"core"``, ``"inductor"``, or ``"all"`` that torch has."""
    if name == "none":
        return {}
    if name == "all":
        return dict(_private("torch._decomp", "decomposition_table"))
    if name == "core":
        table: dict[Any, Callable[..., Any]] = dict(_private("torch._decomp", "core_aten_decompositions")())
        return table
    return dict(_private("torch._inductor.decomposition", "select_decomp_table")())


# --- claims ------------------------------------------------------------------------------------------------

NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def bound_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call of an operator by the names of its schema, defaults filled in."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if place < len(node.args):
            found[argument.name] = node.args[place]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found


def find_operator(name: str) -> Any:
    """Return the operator that a text names, ``"aten.add"`` or ``"aten.add.Tensor"``, or None."""
    found: Any = torch.ops
    for part in name.removeprefix("torch.ops.").split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError):
            return None
    return found


def copy_attribute(source: torch.nn.Module, target: torch.nn.Module, path: str) -> None:
    """Give a module what another has under a dotted path."""
    importlib.import_module("torch.fx.graph_module")._copy_attr(source, target, path)


def copy_graph_module(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph, its nodes with the same names and metadata."""
    copy = make_graph_module(graph_module, fx.Graph.__deepcopy__(graph_module.graph))
    copy.meta = dict(graph_module.meta)
    return copy


def schema_text(operator: Any) -> str:
    """Return the schema of an operator: ``"aten::add.Tensor(Tensor self, …) -> Tensor"``."""
    return str(operator._schema)


def new_library(namespace: str) -> Any:
    """Return a library of torch with a namespace of its own, ``torch.ops.<namespace>``."""
    library: Any = torch.library.Library
    return library(namespace, "DEF")
