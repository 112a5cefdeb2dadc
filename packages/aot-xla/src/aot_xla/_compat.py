"""The only file of this package that touches private interfaces of PyTorch, or torch_xla at all.

torch_xla is imported when the first graph is compiled, after its version was compared with torch's. All that is used
of it stands in `XlaDevice`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aot_xla.device import CannotTrace, Executable
from aot_xla.errors import UnusableXlaError
from aot_xla.versions import INSTALL_PAIR, require_fitting_pair

__all__ = ["pytree"]

# --- graphs ------------------------------------------------------------------------------------------------


def is_operator(target: Any) -> bool:
    """Tell whether a node's target is an operator of the dispatcher."""
    return isinstance(target, torch._ops.OpOverload)


def is_higher_order(target: Any) -> bool:
    """Tell whether a node's target is an operator that takes operators or graphs."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def tags_of(target: Any) -> set[Any]:
    """Return the tags of an operator; none for anything else."""
    return set(target.tags) if is_operator(target) else set()


def namespace_of(target: Any) -> str | None:
    """Return the library that an operator belongs to, such as ``"aten"``; None for anything else."""
    return str(target.namespace) if is_operator(target) else None


def schema_arguments(target: Any) -> list[Any]:
    """Return the arguments that an operator declares; none for anything else."""
    return list(target._schema.arguments) if is_operator(target) else []


def argument(node: fx.Node, name: str) -> Any:
    """Return what a call of an operator passes as an argument, or its default; None if it has no such one."""
    for position, declared in enumerate(schema_arguments(node.target)):
        if declared.name == name:
            passed = node.args[position] if position < len(node.args) else node.kwargs.get(name)
            return declared.default_value if passed is None else passed
    return None


def real_tensors() -> contextlib.AbstractContextManager[Any]:
    """Enter a context in which factory functions make real tensors: a compiler is called where they make fake ones."""
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
    context: contextlib.AbstractContextManager[Any] = fake_tensor.unset_fake_temporarily()
    return context


def hint(value: Any) -> int | None:
    """Return the number that a (symbolic) int stood for when it was traced, or None if it stood for none."""
    found = value if isinstance(value, int) else getattr(getattr(value, "node", None), "hint", None)
    return found if isinstance(found, int) else None


def all_numbers(values: Iterable[Any]) -> bool:
    """Tell whether sizes are numbers, none of them a symbol."""
    return all(isinstance(value, int) for value in values)


def default_partition(
    joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Save for the backward what eager autograd would save."""
    partition = importlib.import_module("functorch.compile").default_partition
    describe = importlib.import_module("torch.fx.passes.shape_prop")._extract_tensor_metadata
    for node in joint.graph.nodes:
        # torch 2.9 knows a tensor by this note, which numbers that Dynamo has made tensors lack.
        if isinstance(node.meta.get("val"), torch.Tensor) and "tensor_meta" not in node.meta:
            node.meta["tensor_meta"] = describe(node.meta["val"])
    parts: tuple[fx.GraphModule, fx.GraphModule] = partition(joint, joint_inputs, **kwargs)
    return parts


def decompositions_of_torch(*names: str) -> dict[Any, Callable[..., Any]]:
    """Return torch's own decompositions of some ATen operators, all their overloads."""
    from torch._decomp import get_decompositions

    return dict(get_decompositions([getattr(torch.ops.aten, name) for name in names]))


# --- torch_xla ---------------------------------------------------------------------------------------------

REQUIRED = (
    ("_XLAC", "_check_tensor_need_materialization"),
    ("_XLAC", "_get_base_seed_as_tensor"),
    ("_XLAC", "_get_graph_hash"),
    ("_XLAC", "_get_seed_info_id"),
    ("_XLAC", "_get_tensors_xla_device_data_node"),
    ("_XLAC", "_run_cached_graph"),
    ("_XLAC", "_unique_id_for_ir_and_data"),
    ("_XLAC", "_xla_get_cpu_tensors"),
    ("_XLAC", "_xla_get_tensor_id"),
    ("_XLAC", "_xla_sync_multi"),
    ("_XLAC", "_xla_warm_up_cache"),
    ("torch_xla.core.xla_model", "send_cpu_data_to_device"),
    ("torch_xla.core.xla_model", "get_rng_state"),
    ("torch_xla.core.xla_model", "set_rng_state"),
    ("torch_xla.debug.metrics", "counter_value"),
    ("torch_xla.experimental", "eager_mode_context"),
)


@functools.lru_cache(maxsize=1)
def open_device() -> XlaDevice:
    """Import torch_xla and return its default device.

    Raises:
        MissingTorchXlaError, MismatchedTorchXlaError: see `require_fitting_pair`.
        UnusableXlaError: torch_xla can't be imported, lacks what this package needs, or opens no device.
    """
    pair = require_fitting_pair()
    try:
        torch_xla = importlib.import_module("torch_xla")
        missing = [f"{m}.{name}" for m, name in REQUIRED if not hasattr(importlib.import_module(m), name)]
    except Exception as error:
        raise UnusableXlaError(
            f"torch_xla can't be imported ({type(error).__name__}: {error}), though the versions fit: {pair}. "
            f"Install both anew: {INSTALL_PAIR}."
        ) from error
    if missing:
        raise UnusableXlaError(f"{pair}: this torch_xla lacks {', '.join(missing)}. Take {INSTALL_PAIR}.")
    try:
        return XlaDevice(torch_xla.device())
    except Exception as error:
        raise UnusableXlaError(
            f"torch_xla opens no device ({type(error).__name__}: {error}). Set PJRT_DEVICE to one that is there: "
            "CPU is there on every machine, TPU where one is attached."
        ) from error


class XlaDevice:
    """A device of torch_xla. See `aot_xla.device.Device`.

    Args:
        torch_device: As torch_xla names it, such as ``xla:0``.
    """

    def __init__(self, torch_device: torch.device) -> None:
        self.torch_device = torch_device
        self.lock: contextlib.AbstractContextManager[Any] = threading.RLock()
        self._torch_xla: Any = importlib.import_module("torch_xla")
        self._model: Any = importlib.import_module("torch_xla.core.xla_model")
        self._metrics: Any = importlib.import_module("torch_xla.debug.metrics")
        self._c: Any = importlib.import_module("_XLAC")

    @property
    def kind(self) -> str:
        """What computes: ``"CPU"``, ``"TPU"``, …"""
        return str(self._model.xla_device_hw(self.torch_device))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor, or what a fake tensor promises, is on XLA."""
        return tensor.device.type == "xla"

    def upload(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy tensors to the device, at once."""
        on_cpu = [tensor.cpu().contiguous() for tensor in tensors]
        # By `.to(device)` a number 0 or 1 would become a constant, and each a computation of its own.
        return list(self._model.send_cpu_data_to_device(on_cpu, self.torch_device)) if on_cpu else []

    def download(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy tensors to the CPU, at once."""
        return list(self._c._xla_get_cpu_tensors(list(tensors))) if tensors else []

    @contextlib.contextmanager
    def lazily(self) -> Iterator[None]:
        """Note operations even where the user has switched torch_xla to running each by itself."""
        with self._torch_xla.experimental.eager_mode_context(False):
            yield

    def run_pending(self) -> None:
        """Run all that was noted, by anyone."""
        self._torch_xla.sync(reset_scope=False)

    def num_compilations(self) -> int:
        """Return how many computations were compiled in this process."""
        return int(self._metrics.counter_value("UncachedCompile") or 0)

    def random_state(self) -> int:
        """Return the seed from which the next random numbers come."""
        return int(self._model.get_rng_state(str(self.torch_device)))

    def set_random_state(self, state: int) -> None:
        """Set the seed from which the next random numbers come."""
        self._model.set_rng_state(state, str(self.torch_device))

    def compile(
        self, function: Callable[[list[torch.Tensor]], list[torch.Tensor]], stand_ins: list[torch.Tensor]
    ) -> Executable:
        """Trace a function of tensors and compile what it does; nothing is run.

        torch_xla's own ``extract_compiled_graph`` does the same for Dynamo. It keeps the tensors that it traced
        with for as long as the result lives, runs the graph three times, and empties the queue of all operations
        that anybody has noted meanwhile.
        """
        before, fallbacks = self.random_state(), self._num_fallbacks()
        with self.lazily():
            results = function(stand_ins)
        if self._num_fallbacks() != fallbacks:
            raise CannotTrace(f"{', '.join(self._fallback_names())} run on the CPU")
        if not all(self.holds(result) for result in results):
            raise CannotTrace("a result is not on XLA")
        computation = _Computation(self, results, stand_ins)
        # The trace has moved it.
        self.set_random_state(before)
        return computation

    def _fallback_names(self) -> list[str]:
        return [name for name in self._metrics.counter_names() if name.startswith("aten::")]

    def _num_fallbacks(self) -> int:
        return sum(int(self._metrics.counter_value(name) or 0) for name in self._fallback_names())


class _Computation:
    """What XLA has compiled for the results of a trace, to be called with other inputs.

    Args:
        device: Where it runs.
        results: Of the trace, pending.
        stand_ins: The inputs that were traced with.
    """

    def __init__(self, device: XlaDevice, results: list[torch.Tensor], stand_ins: list[torch.Tensor]) -> None:
        self._device = device
        self._c = device._c
        identity = self._c._unique_id_for_ir_and_data
        # XLA computes a value once however often it is returned, and returns no input.
        inputs = {identity(stand_in): i for i, stand_in in enumerate(stand_ins)}
        pending = dict(zip(results, self._c._check_tensor_need_materialization(results), strict=True))
        computed: dict[Any, torch.Tensor] = {
            identity(result): result for result in results if pending[result]
        }
        order = {key: i for i, key in enumerate(computed)}
        self._outputs: list[tuple[str, Any]] = [
            ("computed", order[identity(result)])
            if pending[result]
            else ("input", inputs[identity(result)])
            if identity(result) in inputs
            else ("constant", result)
            for result in results
        ]
        self._hash: Any = None
        self._arguments: list[tuple[str, Any]] = []
        if any(self._c._check_tensor_need_materialization(stand_ins)):
            raise RuntimeError("An operator of XLA's has written to an input of a graph that writes to none.")
        if computed:
            traced = list(computed.values())
            position = {self._c._xla_get_tensor_id(tensor): i for i, tensor in enumerate(stand_ins)}
            ids, values = self._c._get_tensors_xla_device_data_node(traced)
            for tensor_id, value in zip(ids, values, strict=True):
                if tensor_id in position:
                    self._arguments.append(("input", position[tensor_id]))
                elif tensor_id == self._c._get_seed_info_id():
                    self._arguments.append(("seed", None))
                else:
                    self._arguments.append(("constant", value))
            self._hash = self._c._get_graph_hash(traced)
            self._c._xla_warm_up_cache(traced, [])

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        computed = [] if self._hash is None else self._run(inputs)
        sources = {"computed": computed, "input": inputs}
        return [value if kind == "constant" else sources[kind][value] for kind, value in self._outputs]

    def _run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        needed = [inputs[i] for kind, i in self._arguments if kind == "input"]
        noted = self._c._check_tensor_need_materialization(needed)
        if any(noted):
            # A computation takes memory: what the user's own operations have left to be computed comes first.
            waiting = [tensor for tensor, is_noted in zip(needed, noted, strict=True) if is_noted]
            self._c._xla_sync_multi(waiting, devices=[], wait=True, sync_xla_data=True)
        arguments = []
        for kind, value in self._arguments:
            if kind == "seed":
                value = self._c._get_base_seed_as_tensor(str(self._device.torch_device))
            arguments.append(inputs[value] if kind == "input" else value)
        if ("seed", None) in self._arguments:
            self._device.set_random_state(_next_state(self._device.random_state()))
        computed: list[torch.Tensor] = self._c._run_cached_graph(self._hash, arguments)
        return computed


def _next_state(state: int) -> int:
    """Return the state after a computation has drawn: as torch_xla goes on from one to the next."""
    return (1012031 + state * 7012063) % 2**64
