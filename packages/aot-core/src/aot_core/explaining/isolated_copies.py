"""Copies of a function and its arguments that can be run without a trace on the originals.

Tensors keep what they have in common: two that share memory share memory in the copy, a view stays a view of
its base, one tensor passed twice stays one tensor. What can't be copied is a named error, never shared.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aot_core import _compat
from aot_core._compat import pytree
from aot_core.aliasing.memory import alias_root
from aot_core.errors import UncopyableError

__all__ = ["Copies", "random_state_kept"]


class Copies:
    """Makes copies that belong together: a thing that is met twice has one copy.

    Attributes:
        tensors: Original and copy of each tensor that was copied, by the identity of the original.
        captured: Copies of the values that a function refers to without getting them as arguments, by the name
            under which it refers to them.
    """

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.captured: dict[str, Any] = {}
        self._memo: dict[int, Any] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._kept: list[Any] = []
        self._functions: dict[int, Any] = {}

    def copy(self, value: Any, *, what: str) -> Any:
        """Return a copy of a structure of modules, tensors and plain objects.

        Args:
            value: The original.
            what: What to call it in a message.

        Raises:
            UncopyableError: something in it refuses to be copied.
        """
        # Parameters copy themselves, each into memory of its own; so they are copied beforehand.
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                self._memo[id(leaf)] = self.tensor(leaf)
            elif isinstance(leaf, torch.nn.Module):
                for tensor in (*leaf.parameters(), *leaf.buffers()):
                    self._memo[id(tensor)] = self.tensor(tensor)
        try:
            with _CopyTensors(self):
                return copy.deepcopy(value, self._memo)
        except Exception as error:
            raise UncopyableError(
                f"explain() runs a copy of what it is given, and {what} can't be copied "
                f"({type(error).__name__}: {error}). Give its class a __deepcopy__, or leave it out."
            ) from error

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a copy of a callable, with copies of the tensors and modules that it refers to.

        A plain function gets code, globals and closure of its own, so that neither what is compiled for it nor
        what it assigns to globals is seen by the original.

        Raises:
            UncopyableError: something that it refers to refuses to be copied.
        """
        if isinstance(function, functools.partial):
            inner = self.function(function.func)
            args = self.copy(function.args, what="the arguments of a partial")
            return functools.partial(inner, *args, **self.copy(function.keywords, what="a partial"))
        if isinstance(function, types.MethodType):
            owner = self.copy(function.__self__, what=f"the object whose method {function.__name__} is")
            return types.MethodType(function.__func__, owner)
        if isinstance(function, types.FunctionType):
            copied: Callable[..., Any] = self._plain_function(function, top=True)
            return copied
        copied = self.copy(function, what=f"the {type(function).__name__}")
        return copied

    def tensor(self, original: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor."""
        if id(original) not in self.tensors:
            copied = self._copied(original)
            self.tensors[id(original)] = (original, copied)
            copied.__dict__.update(original.__dict__)
            if original.is_leaf and original.grad is not None:
                copied.grad = self.tensor(original.grad)
        return self.tensors[id(original)][1]

    def _copied(self, original: torch.Tensor) -> torch.Tensor:
        if original.layout is not torch.strided or _compat.is_subclass(original) or _compat.is_fake(original):
            return _cloned(original)
        with torch.inference_mode(original.is_inference()):
            root = alias_root(original)
            if root is not original and (view := self._view(original, self.tensor(root))) is not None:
                return view
            with torch.no_grad():
                copied = torch.empty(0, dtype=original.dtype, device=original.device)
                copied.set_(
                    self._storage(original), original.storage_offset(), original.size(), original.stride()
                )
                copied = _compat.with_lazy_bits(copied, like=original)
            if isinstance(original, torch.nn.Parameter):
                return torch.nn.Parameter(copied, original.requires_grad)
            copied.requires_grad_(original.requires_grad)
            return copied if original.is_leaf else _with_history(copied)

    def _view(self, original: torch.Tensor, root: torch.Tensor) -> torch.Tensor | None:
        """Return the view of a copied root, or None where only the memory can be shared."""
        if original.dtype != root.dtype or type(original) is not torch.Tensor:
            return None
        # A view of a tensor that requires a gradient, and requires none itself, was taken under no_grad.
        with torch.set_grad_enabled(original.requires_grad or not root.requires_grad):
            view = root.as_strided(original.size(), original.stride(), original.storage_offset())
            view = _compat.with_lazy_bits(view, like=original)
        if original.requires_grad and not view.requires_grad:
            view.requires_grad_()
        _compat.copy_view_rules(original, view)
        return view if original.is_leaf == view.is_leaf else None

    def _storage(self, original: torch.Tensor) -> torch.UntypedStorage:
        storage = original.untyped_storage()
        if storage._cdata not in self._storages:
            self._kept.append(storage)
            self._storages[storage._cdata] = _compat.copied_storage(storage)
        return self._storages[storage._cdata]

    def _plain_function(self, function: types.FunctionType, *, top: bool = False) -> Any:
        """Copy a function; one further down only if it refers to something that must be copied."""
        if id(function) in self._functions:
            return self._functions[id(function)]
        self._functions[id(function)] = function  # for functions that refer to themselves
        replaced: dict[str, Any] = {}
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                value = self._referred(name, function.__globals__[name])
                if value is not function.__globals__[name]:
                    replaced[name] = value
        cells = function.__closure__ or ()
        closure = tuple(
            self._cell(name, cell) for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
        )
        if not (top or replaced or any(new is not old for new, old in zip(closure, cells, strict=True))):
            return function
        copied = types.FunctionType(
            function.__code__.replace(),
            {**function.__globals__, **replaced},
            function.__name__,
            self.copy(function.__defaults__, what=f"a default of {function.__name__}"),
            closure,
        )
        copied.__kwdefaults__ = self.copy(function.__kwdefaults__, what=f"a default of {function.__name__}")
        copied.__dict__.update(function.__dict__)
        copied.__qualname__, copied.__module__ = function.__qualname__, function.__module__
        self._functions[id(function)] = copied
        if function.__globals__.get(function.__name__) is function:
            copied.__globals__[function.__name__] = copied
        return copied

    def _cell(self, name: str, cell: types.CellType) -> types.CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            return cell
        copied = self._referred(name, value)
        return cell if copied is value else types.CellType(copied)

    def _referred(self, name: str, value: Any) -> Any:
        """Return what stands for a value that a function refers to: itself, unless it holds tensors."""
        if isinstance(value, types.FunctionType):
            return value if _is_from_torch(value) else self._plain_function(value)
        if isinstance(value, (types.MethodType, functools.partial)):
            copied = self.function(value)
        elif _holds_state(value):
            copied = self.copy(value, what=f"{name!r}")
        else:
            return value
        self.captured.setdefault(name, copied)
        return copied


class _CopyTensors(TorchFunctionMode):
    """Lets `Copies` copy the tensors that ``copy.deepcopy`` comes across."""

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self._copies = copies

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            original, memo = args
            memo[id(original)] = self._copies.tensor(original)
            return memo[id(original)]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the state of torch's, Python's and NumPy's random numbers at the end."""
    numpy_random = sys.modules.get("numpy.random")
    python_state = random.getstate()
    numpy_state = None if numpy_random is None else numpy_random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)


def _cloned(original: torch.Tensor) -> torch.Tensor:
    """Return a copy that shares nothing: all that can be had of a subclass or of another layout."""
    with torch.no_grad():
        copied = original.detach().clone()
    if isinstance(original, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, original.requires_grad)
    copied.requires_grad_(original.requires_grad)
    return copied if original.is_leaf else copied.view_as(copied)


def _with_history(leaf: torch.Tensor) -> torch.Tensor:
    """Give a leaf a history without moving it: operations in place are legal on it afterwards."""
    with torch.enable_grad():
        if any(stride == 0 and n > 1 for n, stride in zip(leaf.size(), leaf.stride(), strict=True)):
            return leaf.view_as(leaf)  # expanded: never legal to write, so being a view does no harm
        source = leaf.detach().clone().requires_grad_()
        return leaf.requires_grad_(False).copy_(source)


def _holds_state(value: Any, seen: set[int] | None = None) -> bool:
    """Tell whether a tensor or a module can be reached from a value, through containers and attributes."""
    seen = set() if seen is None else seen
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, (torch.Tensor, torch.nn.Module)):
            return True
        if id(leaf) in seen or isinstance(leaf, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(leaf))
        if any(_holds_state(attribute, seen) for attribute in getattr(leaf, "__dict__", {}).values()):
            return True
    return False


def _names_in(code: types.CodeType) -> list[str]:
    """Return the global names that code refers to, that of the functions inside it included."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names_in(constant)
    return list(dict.fromkeys(names))


def _is_from_torch(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in ("torch", "functorch")
