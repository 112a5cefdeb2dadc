"""Names of the tensors that reach a graph, as the user would write them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from aot_core._compat import pytree
from aot_core.explaining.memory_overlap import same_memory

__all__ = ["TensorNames", "name_of_source", "path_name"]


@dataclasses.dataclass
class _Named:
    tensor: torch.Tensor
    kind: str
    names: list[str]


class TensorNames:
    """Finds the names of a tensor by its identity."""

    def __init__(self) -> None:
        self._named: dict[int, _Named] = {}
        self._origins: dict[int, tuple[torch.Tensor, str]] = {}

    def add_call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        captured: Mapping[str, Any],
    ) -> None:
        """Name all that a call of a function can reach.

        Args:
            function: A module, a method of one, or any callable.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            captured: What it refers to otherwise, by name.
        """
        owner = getattr(function, "__self__", function)
        if isinstance(owner, torch.nn.Module):
            self._add_module("", owner)
        for name, value in _bound(function, args, kwargs):
            self._add_value(name, value, "argument")
        for name, value in captured.items():
            owner = getattr(value, "__self__", value)
            self._add_value(name, owner, "captured")

    def add_origin(self, tensor: torch.Tensor, origin: str) -> None:
        """Note that a graph has returned a tensor."""
        self._origins[id(tensor)] = (tensor, origin)

    def names_of(self, tensor: torch.Tensor) -> list[str]:
        """Return all names of a tensor; none, if it was not named."""
        named = self._named.get(id(tensor))
        return list(named.names) if named is not None else []

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        """Return ``"parameter"``, ``"buffer"``, ``"argument"`` or ``"captured"``; None for one without a name."""
        named = self._named.get(id(tensor))
        return None if named is None else named.kind

    def origin_of(self, tensor: torch.Tensor) -> str | None:
        """Return which graph has returned a tensor."""
        found = self._origins.get(id(tensor))
        return None if found is None else found[1]

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors that have a name."""
        return [named.tensor for named in self._named.values()]

    def tensor_named(self, name: str) -> torch.Tensor | None:
        """Return the tensor that a name stands for."""
        return next((named.tensor for named in self._named.values() if name in named.names), None)

    def names_beside(self, tensor: torch.Tensor) -> list[str]:
        """Return the names of all tensors in the memory of one, its own included."""
        return [
            name
            for named in self._named.values()
            if same_memory(named.tensor, tensor)
            for name in named.names
        ]

    def _add_value(self, name: str, value: Any, kind: str) -> None:
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                self._add(path_name(name, path), leaf, kind)
            elif isinstance(leaf, torch.nn.Module):
                self._add_module(path_name(name, path) + ".", leaf)

    def _add_module(self, prefix: str, module: torch.nn.Module) -> None:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            self._add(prefix + name, parameter, "parameter")
        for name, buffer in module.named_buffers(remove_duplicate=False):
            self._add(prefix + name, buffer, "buffer")

    def _add(self, name: str, tensor: torch.Tensor, kind: str) -> None:
        named = self._named.setdefault(id(tensor), _Named(tensor, kind, []))
        if name not in named.names:
            named.names.append(name)


def path_name(name: str, path: Sequence[Any]) -> str:
    """Return ``"batch['mask'][0]"`` for the place of a leaf in a structure called ``"batch"``."""
    return name + str(pytree.keystr(tuple(path)))


def name_of_source(source: str) -> str:
    """Turn Dynamo's ``L['self']._modules['0']._parameters['weight']`` into ``self.0.weight``."""
    source = re.sub(r"\b[LG]\['([^']*)'\]", r"\1", source)
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", source)


def _bound(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Pair the arguments of a call with the names of the function's parameters."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        yield "args", tuple(args)
        yield from kwargs.items()
        return
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value
