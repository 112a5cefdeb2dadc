"""All that this package knows of torch's private parts: its registry, Dynamo's counters and limits, and where a
backend hands its compilers to AOTAutograd.

torch keeps two dictionaries in ``torch._dynamo.backends.registry``, the same from 2.9 to 2.15: ``_BACKENDS``
(name → entry point, or None once loaded) and ``_COMPILER_FNS`` (name → backend). ``torch.compile`` looks a
name up when it is called, in the second first, which is why what is put there wins over any entry point.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot_registry.errors import InvalidBackendError, UnsupportedTorchError

if TYPE_CHECKING:
    import torch

__all__ = [
    "LoadedRegistry",
    "State",
    "Tools",
    "bisect_config",
    "cause_of",
    "compiled_graph_count",
    "default_partition",
    "find_backend",
    "is_subclass",
    "loaded_registry",
    "named_leaves",
    "names_of_torch",
    "random_numbers_drawn_as",
    "recompile_limit_raised_for",
    "tools_exchanged",
    "view_base",
]

_DECORATORS = ("register_backend", "register_debug_backend", "register_experimental_backend")
_REGISTERING_FILES = ("_dynamo/backends/*.py", "_dynamo/repro/*.py")


def names_of_torch() -> frozenset[str]:
    """Return the backend names that the installed torch registers itself, without importing it.

    They are read from the source files that register them: importing ``torch._dynamo`` to ask costs seconds,
    and what a running process has registered may have been put there by anyone. Empty if there is no torch,
    or none with its sources.
    """
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return frozenset()
    names: set[str] = set()
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for pattern in _REGISTERING_FILES:
            for path in sorted(Path(root).glob(pattern)):
                names.update(_registered_in(path))
    return frozenset(names)


def _registered_in(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                if _called_name(decorator) in _DECORATORS:
                    names.add(_name_argument(decorator) or node.name)
        elif isinstance(node, ast.Call) and _called_name(node) in _DECORATORS:
            name = _name_argument(node)
            if name is not None:
                names.add(name)
    return names


def _called_name(node: ast.expr) -> str | None:
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else None


def _name_argument(node: ast.expr) -> str | None:
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


@dataclasses.dataclass(frozen=True)
class State:
    """What torch knows of one name: an item of each of its dictionaries, or none."""

    entry_point: dict[str, Any]
    backend: dict[str, Any]


class LoadedRegistry:
    """torch's registry, with torch's own backends in it. Made by `loaded_registry`."""

    def __init__(self, entry_points: MutableMapping[str, Any], backends: MutableMapping[str, Any]) -> None:
        self._entry_points = entry_points
        self._backends = backends

    def get(self, name: str) -> Callable[..., Any] | None:
        """Return the backend that torch holds under a name; None if it has none, or has not loaded it."""
        return self._backends.get(name)

    def put(self, name: str, backend: Callable[..., Any], tags: tuple[str, ...] | None = None) -> None:
        """Make torch answer a name with this backend, whatever it held before.

        Args:
            name: What the user passes to ``torch.compile``.
            backend: The backend.
            tags: Its tags; None leaves those that it has.

        Raises:
            InvalidBackendError: the backend refuses the attribute ``_tags``.
        """
        # torch's listing reads this attribute of every backend it holds, and fails for all if one lacks it.
        if tags is not None or not hasattr(backend, "_tags"):
            try:
                backend._tags = tags or ()  # type: ignore[attr-defined]
            except AttributeError as error:
                raise InvalidBackendError(
                    f"Backend {name!r} is a {type(backend).__name__}, which refuses the attribute _tags that "
                    "torch keeps on backends. Wrap it in a function."
                ) from error
        self._entry_points.setdefault(name, None)
        self._backends[name] = backend

    def state(self, name: str) -> State:
        """Return all that torch knows of a name, for `restore`."""
        return State(
            {name: self._entry_points[name]} if name in self._entry_points else {},
            {name: self._backends[name]} if name in self._backends else {},
        )

    def restore(self, name: str, state: State) -> None:
        """Make torch know of a name what it knew when `state` was called."""
        self._entry_points.pop(name, None)
        self._backends.pop(name, None)
        self._entry_points.update(state.entry_point)
        self._backends.update(state.backend)


def loaded_registry() -> LoadedRegistry:
    """Import torch's registry and have it register its own backends, which it otherwise does at first need.

    Raises:
        UnsupportedTorchError: torch is not installed, or keeps its registry otherwise.
    """
    try:
        module = importlib.import_module("torch._dynamo.backends.registry")
    except Exception as error:
        raise UnsupportedTorchError(
            f"torch's registry of backends can't be imported ({type(error).__name__}: {error}). Install "
            "torch>=2.10,<2.16; if that is what you have, `aot doctor` may tell what is wrong with it."
        ) from error
    entry_points = getattr(module, "_BACKENDS", None)
    backends = getattr(module, "_COMPILER_FNS", None)
    load = getattr(module, "_lazy_import", None)
    if not isinstance(entry_points, dict) or not isinstance(backends, dict) or not callable(load):
        version = getattr(importlib.import_module("torch"), "__version__", "unknown")
        raise UnsupportedTorchError(
            f"torch {version} keeps its registry of backends otherwise than torch 2.9 to 2.15. Pass backend "
            "objects instead of names, torch.compile(model, backend=aot_registry.get_backend(...)), or "
            "install torch>=2.10,<2.16."
        )
    load()
    return LoadedRegistry(entry_points, backends)


def compiled_graph_count() -> int:
    """Return how many graphs Dynamo has handed to backends since its counters were cleared."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    return int(counters["stats"]["unique_graphs"])


@contextlib.contextmanager
def recompile_limit_raised_for(backends: int) -> Iterator[None]:
    """Let one code object be compiled as often for each of several backends as otherwise for one alone.

    Past its limit Dynamo runs a frame uncompiled, with no more than a warning.
    """
    config = importlib.import_module("torch._dynamo.config")
    limits = ("recompile_limit", "accumulated_recompile_limit")
    with config.patch({limit: getattr(config, limit) * backends for limit in limits}):
        yield


# --- bisection ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tools:
    """What a backend hands to AOTAutograd, for one graph.

    Args:
        forward: Compiles the forward graph.
        backward: Compiles the backward graph.
        inference: Compiles the one graph of a call that needs no gradient.
        partition: Cuts the joint graph into forward and backward.
        decompositions: ``{operator: function}``.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    inference: Callable[..., Any]
    partition: Callable[..., Any]
    decompositions: Mapping[Any, Callable[..., Any]]


_TOOLS_BY_ARGUMENT = {
    "fw_compiler": "forward",
    "bw_compiler": "backward",
    "inference_compiler": "inference",
    "partition_fn": "partition",
    "decompositions": "decompositions",
}


@contextlib.contextmanager
def tools_exchanged(exchange: Callable[[Tools], Tools]) -> Iterator[None]:
    """Let ``exchange`` see, and replace, what any backend hands to AOTAutograd in this thread.

    Every backend on AOTAutograd comes through one function: those of aot-core, Inductor, and those made by torch's
    own ``aot_autograd``.
    """
    entrance = "aot_module_simplified"
    modules = [
        importlib.import_module(name)
        for name in ("torch._functorch.aot_autograd", "torch._dynamo.backends.common", "functorch.compile")
    ]
    original = getattr(modules[0], entrance)
    signature = inspect.signature(original)
    thread = threading.get_ident()

    def enter(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        forward = given["fw_compiler"]
        tools = exchange(
            Tools(
                forward=forward,
                backward=given.get("bw_compiler") or forward,
                inference=given.get("inference_compiler") or forward,
                partition=given.get("partition_fn") or default_partition,
                decompositions=given.get("decompositions") or {},
            )
        )
        given.update({argument: getattr(tools, field) for argument, field in _TOOLS_BY_ARGUMENT.items()})
        given["decompositions"] = dict(tools.decompositions)  # AOTAutograd may add to it
        return original(*bound.args, **bound.kwargs)

    replaced = [module for module in modules if getattr(module, entrance, None) is original]
    for module in replaced:
        setattr(module, entrance, enter)
    try:
        yield
    finally:
        for module in replaced:
            setattr(module, entrance, original)


def default_partition(joint: Any, joint_inputs: Any, /, *, num_fwd_outputs: int, **kwargs: Any) -> Any:
    """Save for the backward what eager autograd would save."""
    partition = importlib.import_module("functorch.compile").default_partition
    parameters = inspect.signature(partition).parameters
    kwargs = {name: value for name, value in kwargs.items() if name in parameters}
    return partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)


@contextlib.contextmanager
def bisect_config() -> Iterator[None]:
    """Hold torch's configuration such that each run of a bisection compiles anew, and draws eager's random numbers.

    A compile served from a cache calls no compiler. Inductor draws random numbers of its own unless told not to,
    and every dropout would count as a fault.
    """
    wanted = {
        "torch._functorch.config": {"enable_autograd_cache": False, "enable_remote_autograd_cache": False},
        "torch._inductor.config": {"force_disable_caches": True, "fallback_random": True},
        "torch._dynamo.config": {"suppress_errors": False},
    }
    with contextlib.ExitStack() as stack:
        for name, settings in wanted.items():
            config = importlib.import_module(name)
            stack.enter_context(
                config.patch({key: value for key, value in settings.items() if hasattr(config, key)})
            )
        yield


EAGER_RANDOM_NUMBERS = "import torch._inductor.config\n\ntorch._inductor.config.fallback_random = True"
"""Code of a reproducer that has Inductor and its decompositions draw eager's random numbers."""


def find_backend(name: str) -> Callable[..., Any]:
    """Return what ``torch.compile(backend=name)`` would call."""
    found: Callable[..., Any] = importlib.import_module("torch._dynamo").lookup_backend(name)
    return found


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a backend raised, for one that Dynamo wrapped it in."""
    inner = getattr(error, "inner_exception", None)
    return error if inner is None else cause_of(inner)


def named_leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the leaves of nested containers with the expression that gets at each: ``("inputs[0]['mask']", …)``."""
    pytree = importlib.import_module("torch.utils._pytree")
    leaves, _ = pytree.tree_flatten_with_path(value)
    return [(name + pytree.keystr(path), leaf) for path, leaf in leaves]


def view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor of which autograd knows this one as a view."""
    return None if tensor.is_inference() else tensor._base


def is_subclass(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a wrapper around others, with no memory of its own to look at."""
    module = importlib.import_module("torch.utils._python_dispatch")
    return bool(module.is_traceable_wrapper_subclass(tensor))


def random_numbers_drawn_as(
    narrow: torch.dtype, default: torch.dtype
) -> contextlib.AbstractContextManager[Any]:
    """Draw the random numbers of a float64 run in another type, so that they are those of a run in that type.

    Args:
        narrow: What float64 tensors are drawn as.
        default: The default type that operations without a type draw in.
    """
    torch = importlib.import_module("torch")
    module = importlib.import_module("torch.utils._python_dispatch")
    tree_map = importlib.import_module("torch.utils._pytree").tree_map
    wide = torch.float64

    class Narrow(module.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if torch.Tag.nondeterministic_seeded not in func.tags:
                return func(*args, **kwargs)
            copies: list[tuple[Any, Any]] = []

            def narrowed(value: Any) -> Any:
                if isinstance(value, torch.Tensor) and value.dtype == wide:
                    copies.append((value, value.to(narrow)))
                    return copies[-1][1]
                return narrow if value is wide else value

            narrow_args, narrow_kwargs = tree_map(narrowed, (args, kwargs))
            before = torch.get_default_dtype()
            torch.set_default_dtype(default)
            try:
                result = func(*narrow_args, **narrow_kwargs)
            finally:
                torch.set_default_dtype(before)
            if func._schema.is_mutable:
                for original, copied in copies:
                    original.copy_(copied)
            originals = {id(copied): original for original, copied in copies}

            def widened(value: Any) -> Any:
                if id(value) in originals:
                    return originals[id(value)]
                floating = isinstance(value, torch.Tensor) and value.dtype in (narrow, default)
                return value.to(wide) if floating else value

            return tree_map(widened, result)

    return Narrow()


def is_tensor_of_module(node: Any) -> bool:
    """Tell whether an input of a graph that Dynamo captured is a parameter or buffer of a module.

    Dynamo notes where it found each: ``"L['self']._modules['first']._parameters['weight']"``.
    """
    source = getattr(node, "_dynamo_source", None)
    # A method up to torch 2.9, a property since.
    name = getattr(source, "name", None)
    name = name() if callable(name) else name
    return isinstance(name, str) and ("._parameters[" in name or "._buffers[" in name)
