"""A graph traced for one device, rewritten so that it computes on another.

Before, traced for a model on the CPU::

    def forward(x):
        zeros = aten.zeros([3], device=cpu)
        return cond(x_is_large, ...) + zeros

After, for XLA::

    def forward(x):
        zeros = aten.zeros([3], device=xla:0)
        return on_cpu(cond)(x_is_large, ...) + zeros

Only what the graph says is looked at. Where its inputs come from and where its outputs go is not its business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate, map_arg

from aot_core import RuntimeInterpreter
from aot_xla import _compat
from aot_xla.device import Device
from aot_xla.errors import UnsupportedDtypeError

__all__ = ["OnCpu", "PromisedDtypes", "obstacles_to_tracing", "place_graph", "require_dtypes"]


class OnCpu:
    """An operation on tensors of a device, run on the CPU.

    Args:
        function: The operation.
        device: Where its tensors come from and its results go.
    """

    def __init__(self, function: Callable[..., Any], device: Device) -> None:
        self.function = function
        self.device = device
        self.__name__ = f"on_cpu_{getattr(function, '__name__', 'function')}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        def fetch(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device("cpu")
            placed = isinstance(value, torch.Tensor) and self.device.holds(value)
            return self.device.download([value])[0] if placed else value

        def send(value: Any) -> Any:
            movable = isinstance(value, torch.Tensor) and value.layout is torch.strided
            return self.device.upload([value])[0] if movable else value

        args, kwargs = _compat.pytree.tree_map(fetch, (args, kwargs))
        return _compat.pytree.tree_map(send, self.function(*args, **kwargs))


def place_graph(gm: fx.GraphModule, outputs: Sequence[fx.Node], device: Device) -> fx.GraphModule:
    """Return a copy of a graph that computes some of its nodes on a device, its tensor constants there.

    Operators that take graphs (``cond``, ``while_loop``) or sparse tensors are not known to XLA: they, and the graphs
    that they take, run on the CPU.
    """
    placed = _retargeted(gm, device.torch_device, tuple(outputs))
    for name, part in placed.named_children():
        if isinstance(part, fx.GraphModule):
            setattr(placed, name, _on_cpu(part))
    for node in placed.graph.nodes:
        if node.op == "call_function" and _runs_on_cpu(node):
            node.target = OnCpu(node.target, device)
    _move_constants_(placed, device)
    placed.recompile()
    return placed


def _runs_on_cpu(node: fx.Node) -> bool:
    """Tell whether XLA has no form of an operation, not even one that goes through the CPU."""
    return _compat.is_higher_order(node.target) or any(
        value.layout is not torch.strided
        for each in (node, *node.all_input_nodes)
        for value in _tensors(each.meta.get("val"))
    )


def _on_cpu(gm: fx.GraphModule) -> fx.GraphModule:
    placed = _retargeted(gm, torch.device("cpu"), gm.graph.output_node().args[0])
    for name, part in placed.named_children():
        if isinstance(part, fx.GraphModule):
            setattr(placed, name, _on_cpu(part))
    return placed


def _retargeted(gm: fx.GraphModule, device: torch.device, outputs: Any) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(map_arg(outputs, lambda original: copies[original]))
            continue
        copy = graph.node_copy(node, lambda original: copies[original])
        copy.args = map_aggregate(copy.args, lambda value: _replaced(value, device))
        copy.kwargs = map_aggregate(copy.kwargs, lambda value: _replaced(value, device))
        if "device" in copy.kwargs or _makes_a_tensor(copy):
            kwargs = {name: value for name, value in copy.kwargs.items() if name != "pin_memory"}
            copy.kwargs = {**kwargs, "device": device}
        copies[node] = copy
    graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)


def _replaced(value: Any, device: torch.device) -> Any:
    return device if isinstance(value, torch.device) and value.type != "meta" else value


def _makes_a_tensor(node: fx.Node) -> bool:
    """Tell whether an operator takes a device and no tensor: left out, it stands for the CPU."""
    arguments = _compat.schema_arguments(node.target)
    kinds = {str(argument.type) for argument in arguments}
    return any(argument.name == "device" for argument in arguments) and not any("Tensor" in k for k in kinds)


def _move_constants_(gm: fx.GraphModule, device: Device) -> None:
    moved: dict[int, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            module = gm.get_submodule(owner)
            value = getattr(module, name)
            if isinstance(value, torch.Tensor) and value.device != device.torch_device:
                if id(value) not in moved:
                    (moved[id(value)],) = device.upload([value.detach()])
                delattr(module, name)
                module.register_buffer(name, moved[id(value)], persistent=False)


class PromisedDtypes(RuntimeInterpreter):
    """Runs a placed graph; each value has the dtype that the trace promised.

    XLA promotes otherwise than PyTorch here and there: the absolute value of a complex number is complex, and a half
    with a zero-dimensional float gives a float, which claims to be a half.
    """

    def run_node(self, n: fx.Node) -> Any:
        result, promised = super().run_node(n), n.meta.get("val")
        if not isinstance(result, torch.Tensor) or not isinstance(promised, torch.Tensor):
            return result
        if result.layout is not torch.strided:
            return result
        wide = _promoted_with_a_number(n)
        if wide not in (None, promised.dtype):
            # Only what is said to be of another dtype is converted.
            result = result.to(wide)
        if result.dtype == promised.dtype:
            return result
        if result.is_complex() and not promised.is_complex():
            result = torch.real(result)
        return result.to(promised.dtype)


def _promoted_with_a_number(node: fx.Node) -> torch.dtype | None:
    """Return what the dtypes of an operation's inputs promote to, if zero-dimensional ones are among them."""
    inputs = [value for each in node.all_input_nodes for value in _tensors(each.meta.get("val"))]
    if len({value.dim() == 0 for value in inputs}) < 2 or any(value.dtype == torch.bool for value in inputs):
        return None
    return functools.reduce(torch.promote_types, (value.dtype for value in inputs))


def obstacles_to_tracing(gm: fx.GraphModule) -> list[str]:
    """Return the operations of a graph that a trace of one call does not hold for another.

    Those whose result's size depends on data, those that run on the CPU in between, and those of other libraries
    than torch, which may do anything.
    """
    return list(dict.fromkeys(str(node.target) for node in gm.graph.nodes if _defies_tracing(node)))


def _defies_tracing(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if _runs_on_cpu(node):
        return True
    depends_on_data = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    if depends_on_data & _compat.tags_of(node.target):
        return True
    return _compat.namespace_of(node.target) not in (None, "aten", "prims")


def require_dtypes(gm: fx.GraphModule, device: Device) -> None:
    """Check that a device holds every dtype of a graph.

    Raises:
        UnsupportedDtypeError: XLA takes one for another, such as uint16 for int16; names the first node.
    """
    found: dict[torch.dtype, str] = {}
    for node in gm.graph.nodes:
        for value in _tensors(node.meta.get("val")):
            found.setdefault(value.dtype, node.name)
    held = device.upload([torch.zeros(1, dtype=dtype) for dtype in found])
    for (dtype, name), copy in zip(found.items(), held, strict=True):
        if copy.dtype != dtype:
            raise UnsupportedDtypeError(
                f"Node {name} of the graph is of dtype {dtype}, which XLA takes for {copy.dtype}: it would compute "
                "other numbers. Use another dtype in the model, or another backend for it."
            )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _compat.pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
