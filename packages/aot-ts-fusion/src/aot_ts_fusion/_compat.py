"""The only file of this package that touches PyTorch's private interfaces.

TorchScript graphs are built through the bindings of ``torch._C``, which have been the same since torch 1.x, and not
by `torch.jit`, which is deprecated and warns. What a torch may lack is told by looking for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["pytree"]

REQUIRED = (
    ("torch._C", "Graph"),
    ("torch._C", "ScriptList"),
    ("torch._C", "_create_function_from_graph"),
    ("torch._C", "_get_graph_executor_optimize"),
    ("torch._C", "_set_graph_executor_optimize"),
    ("torch._ops", "OpOverload"),
)

IRGraph = Any
IRNode = Any
IRValue = Any
IRType = Any


# --- TorchScript IR ----------------------------------------------------------------------------------------


def new_graph() -> IRGraph:
    """Return an empty TorchScript graph."""
    return torch._C.Graph()


def create_function(name: str, graph: IRGraph) -> Callable[..., Any]:
    """Return a function that executes a TorchScript graph; it takes and returns what the graph does."""
    function: Callable[..., Any] = torch._C._create_function_from_graph(name, graph)
    return function


TENSOR: IRType = torch._C.TensorType.get()
INT: IRType = torch._C.IntType.get()
FLOAT: IRType = torch._C.FloatType.get()
BOOL: IRType = torch._C.BoolType.get()
COMPLEX: IRType = torch._C.ComplexType.get()
NUMBER: IRType = torch._C.NumberType.get()


def list_of(element: IRType) -> IRType:
    """Return the type of lists of a type."""
    return torch._C.ListType(element)


def tuple_of(elements: list[IRType]) -> IRType:
    """Return the type of tuples of types."""
    return torch._C.TupleType(elements)


def empty_list_of_tensors() -> Any:
    """Return a list that TorchScript takes as it is, without copying it: what is cleared there is cleared here."""
    empty: Any = torch._C.ScriptList([torch.empty(0)])
    empty.clear()
    return empty


# --- operators ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of an operator's schema; `kind` is its type's, such as ``"TensorType"``."""

    name: str
    type: IRType
    default: Any
    has_default: bool


@dataclasses.dataclass(frozen=True)
class Signature:
    """An operator's schema, as TorchScript sees it: symbolic integers are integers there."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[IRType, ...]
    text: str
    writes: bool
    draws: bool
    views: bool


def is_operator(target: Any) -> bool:
    """Tell whether the target of a node is an overload of a registered operator."""
    return isinstance(target, torch._ops.OpOverload)


def is_higher_order(target: Any) -> bool:
    """Tell whether the target of a node is a higher-order operator."""
    return isinstance(target, torch._ops.HigherOrderOperator)


@functools.cache
def signature(target: Any) -> Signature:
    """Return the schema of an operator overload."""
    schema = target._schema
    return Signature(
        schema.name,
        schema.overload_name,
        tuple(
            Argument(each.name, each.type, each.default_value, each.has_default_value())
            for each in schema.arguments
        ),
        tuple(each.type for each in schema.returns),
        comparable(str(schema)),
        schema.is_mutable,
        torch.Tag.nondeterministic_seeded in target.tags,
        any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns),
    )


def comparable(schema: str) -> str:
    """Return the text of a schema without the difference between integers and symbolic ones."""
    return schema.replace("SymInt", "int")


# --- execution ---------------------------------------------------------------------------------------------


class _NativeErrors:
    """While someone is inside, an exception leaves TorchScript as what it is.

    TorchScript's interpreter turns every exception into a RuntimeError with a text, unless this flag of its C++ is
    set. It has no binding in Python, but it is a plain exported variable. It is set while a graph runs, and put back.
    """

    def __init__(self) -> None:
        self._flag = self._find()
        self._before = False
        self._inside = 0
        self._lock = threading.Lock()

    @staticmethod
    def _find() -> ctypes.c_bool | None:
        folder = Path(torch.__file__).parent / "lib"
        for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
            if (folder / name).exists():
                try:
                    library = ctypes.CDLL(str(folder / name))
                    return ctypes.c_bool.in_dll(library, "FLAGS_torch_jit_enable_rethrow_caught_exception")
                except (OSError, ValueError):
                    return None
        return None

    @property
    def available(self) -> bool:
        return self._flag is not None

    def enter(self) -> None:
        if self._flag is not None:
            with self._lock:
                if not self._inside:
                    self._before = self._flag.value
                    self._flag.value = True
                self._inside += 1

    def leave(self) -> None:
        if self._flag is not None:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._flag.value = self._before


_native_errors = _NativeErrors()


def keeps_error_types() -> bool:
    """Tell whether an exception can leave TorchScript as what it is; otherwise it becomes a RuntimeError."""
    return _native_errors.available


def run_as_built(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a TorchScript function without optimizing its graph; exceptions are those of the operators.

    The optimizer would evaluate, once and for all, what depends on constants only. A tensor that a graph creates
    would then be one tensor for all calls, and what the caller writes to it would be there in the next
    (pytorch/pytorch#93702, torch 2.10 to 2.15).
    """
    before = torch._C._get_graph_executor_optimize(False)
    _native_errors.enter()
    try:
        return function(*arguments)
    finally:
        _native_errors.leave()
        torch._C._set_graph_executor_optimize(before)


def run_optimized(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a TorchScript function, letting TorchScript profile and optimize its graph in the first calls."""
    before = torch._C._get_graph_executor_optimize(True)
    _native_errors.enter()
    try:
        return function(*arguments)
    finally:
        _native_errors.leave()
        torch._C._set_graph_executor_optimize(before)


# --- TorchScript's own fusers ------------------------------------------------------------------------------

# Whether it may fuse on the CPU, on the GPU, by tensor expressions (NNC), by oneDNN Graph: what `torch.jit.fuser` sets.
_SWITCHES: dict[str, tuple[bool, bool, bool, bool]] = {
    "fuser0": (True, True, False, False),
    "fuser1": (True, True, True, False),
    "fuser2": (False, False, False, False),
    "fuser3": (True, False, True, True),
}


def _read_switches() -> tuple[bool, bool, bool, bool]:
    return (
        torch._C._jit_can_fuse_on_cpu(),
        torch._C._jit_can_fuse_on_gpu(),
        torch._C._jit_texpr_fuser_enabled(),
        torch._C._jit_llga_enabled(),
    )


def _set_switches(values: tuple[bool, bool, bool, bool]) -> None:
    cpu, gpu, expressions, onednn = values
    torch._C._jit_override_can_fuse_on_cpu(cpu)
    torch._C._jit_override_can_fuse_on_gpu(gpu)
    torch._C._jit_set_texpr_fuser_enabled(expressions)
    if torch._C._jit_llga_enabled() != onednn:
        torch._C._jit_set_llga_enabled(onednn)


_INITIAL_SWITCHES = _read_switches()


def ambient_fuser() -> str | None:
    """Return which ``torch.jit.fuser`` is in force, or None where nobody has chosen one.

    A torch without nvFuser can't tell ``"fuser2"`` from no fuser at all, which is what it is.
    """
    found = _recognizable(_read_switches())
    if found == _recognizable(_INITIAL_SWITCHES):
        return None
    return next((name for name, values in _SWITCHES.items() if _recognizable(values) == found), None)


def _recognizable(switches: tuple[bool, bool, bool, bool]) -> tuple[bool, bool, bool]:
    """Leave out the switch for GPUs: it is off on a torch without CUDA, whatever was asked for."""
    cpu, _, expressions, onednn = switches
    return cpu, expressions, onednn


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Have TorchScript fuse as ``torch.jit.fuser(name)`` does; for the whole process, as there."""
    before = _read_switches()
    profiling = torch._C._jit_set_profiling_executor(True)
    cpu, gpu, expressions, onednn = _SWITCHES[name]
    # Told to use NNC on a CPU without LLVM, TorchScript would raise when it meets something to fuse.
    _set_switches((cpu and (can_fuse_on_cpu() or not expressions), gpu, expressions, onednn))
    try:
        yield
    finally:
        _set_switches(before)
        torch._C._jit_set_profiling_executor(profiling)


def can_fuse_on_cpu() -> bool:
    """Tell whether this torch was built with what NNC needs to fuse on a CPU: LLVM."""
    return bool(torch._C._llvm_enabled())


# --- recording what eager calls (op_database) --------------------------------------------------------------------


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes a graph of the ATen operators that are called, the one that raises included.

    Attributes:
        graph: The graph so far.
        inputs: The tensors that came from outside, one for each placeholder.
        last: Node of the last call.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.inputs: list[torch.Tensor] = []
        self.last: fx.Node | None = None
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a call, then make it."""
        kwargs = kwargs or {}
        node_args, node_kwargs = pytree.tree_map(self._node, (args, kwargs))
        self.last = self.graph.call_function(func, node_args, node_kwargs)
        result = func(*args, **kwargs)
        self._remember(self.last, result)
        return result

    def _node(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._nodes:
            with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
                node = self.graph.placeholder(f"input_{len(self.inputs)}")
            node.meta["val"] = value
            self.inputs.append(value)
            self._nodes[id(value)] = node
            self._alive.append(value)
        return self._nodes[id(value)]

    def _remember(self, node: fx.Node, result: Any) -> None:
        self._alive.append(result)
        if isinstance(result, torch.Tensor):
            node.meta["val"] = result
            self._nodes[id(result)] = node
        elif isinstance(result, (list, tuple)):
            for place, each in enumerate(result):
                self._remember(self.graph.call_function(operator.getitem, (node, place)), each)
        else:
            node.meta["val"] = result
