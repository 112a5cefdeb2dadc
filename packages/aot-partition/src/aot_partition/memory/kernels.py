"""Measure kernels on this machine, each operation and shape once: scratch memory, and time if wanted.

A convolution allocates up to three times its output inside, a matrix product in bfloat16 or logsumexp as well:
nothing in a graph tells. So each distinct call is run once on made-up tensors of the right sizes while the
allocator is watched::

    during the call  ▁▁▂▂████▂▂      the most: 8
    outputs                ▂▂      its outputs: 2      scratch: 6
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.memory.measure import AllocationTrace, trace_allocations

__all__ = ["Kernel", "KernelProfile", "made_up"]

log = logging.getLogger(__name__)

LONG_ENOUGH = 2e-3
"""Seconds over which a short kernel is run again and again, to time it."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What one call costs.

    Args:
        scratch: Bytes that it allocates inside and frees before it returns.
        seconds: How long it takes, or None where it was not timed.
    """

    scratch: int
    seconds: float | None = None


class KernelProfile:
    """Measured kernels, by operation and by the shapes, strides and dtypes of its arguments.

    Keeps what it measured, so that one profile can serve many graphs. Operations that can't be run alone
    (collectives, operations on graphs or on data-dependent sizes) count as without scratch.

    Args:
        timed: Whether to time kernels too.
    """

    def __init__(self, *, timed: bool = False) -> None:
        self.timed = timed
        self._known: dict[Any, Kernel | None] = {}

    def measure(self, nodes: Iterable[fx.Node]) -> None:
        """Measure those calls of a graph that are not known yet."""
        pending: dict[Any, fx.Node] = {}
        for node in nodes:
            if node.op == "call_function":
                key = _signature(node)
                if key not in self._known:
                    pending.setdefault(key, node)
        if pending:
            with _compat.no_modes(), torch.no_grad(), torch.random.fork_rng():
                self._measure(pending)

    def scratch(self, node: fx.Node) -> int:
        """Return the scratch memory of a node's kernel in bytes; 0 where it is not known."""
        kernel = self._known.get(_signature(node))
        return 0 if kernel is None else kernel.scratch

    def seconds(self, node: fx.Node) -> float | None:
        """Return how long a node's kernel takes, or None where it is not known."""
        kernel = self._known.get(_signature(node))
        return None if kernel is None else kernel.seconds

    def _measure(self, pending: dict[Any, fx.Node]) -> None:
        on_cpu: list[tuple[Any, fx.Node]] = []
        for key, node in pending.items():
            self._known[key] = None
            if _runs_alone(node):
                if _device(node).type == "cpu":
                    on_cpu.append((key, node))
                else:
                    self._record(key, node, _scratch_on_device(node))
        try:
            found = _scratch_on_cpu([node for _, node in on_cpu])
        except RuntimeError as error:
            # A profiler of the user's is running: there can be no second one.
            log.warning("scratch memory of kernels was not measured: %s", error)
            found = [0] * len(on_cpu)
        for (key, node), scratch in zip(on_cpu, found, strict=True):
            self._record(key, node, scratch)

    def _record(self, key: Any, node: fx.Node, scratch: int | None) -> None:
        if scratch is not None:
            self._known[key] = Kernel(scratch, _time(node) if self.timed else None)


def _scratch_on_cpu(nodes: list[fx.Node]) -> list[int | None]:
    """Return the scratch memory of each call, None where it can't be run."""
    outputs: dict[int, int] = {}
    ran: list[int] = []
    with trace_allocations() as trace:
        for number, node in enumerate(nodes):
            try:
                args, kwargs = _arguments(node)
                AllocationTrace.mark()
                ran.append(number)
                result = _call(node, args, kwargs)
                outputs[number] = _new_bytes(result, (args, kwargs))
                AllocationTrace.mark()
                del result, args, kwargs
            except Exception as error:
                log.debug("%s was not measured: %s", node, error)
    found: list[int | None] = [None] * len(nodes)
    # Two sections belong to a call that ran, its own and what follows it, and one to a call that failed.
    section = 1
    for number in ran:
        levels = trace.sections[section]
        section += 2 if number in outputs else 1
        if number in outputs:
            found[number] = max(0, max(levels) - levels[0] - outputs[number])
    return found


def _scratch_on_device(node: fx.Node) -> int | None:
    module = torch.get_device_module(_device(node))
    try:
        args, kwargs = _arguments(node)
        module.synchronize()
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        result = _call(node, args, kwargs)
        module.synchronize()
        most = module.max_memory_allocated() - before
        kept = module.memory_allocated() - before
        del result
    except Exception as error:
        log.debug("%s was not measured: %s", node, error)
        return None
    return int(max(0, most - kept))


def _time(node: fx.Node) -> float | None:
    """Return the shortest of a few runs."""
    try:
        args, kwargs = _arguments(node)
        device = _device(node)
        best = _seconds_of(node, args, kwargs, device)
        started = time.perf_counter()
        while time.perf_counter() - started < LONG_ENOUGH:
            best = min(best, _seconds_of(node, args, kwargs, device))
    except Exception as error:
        log.debug("%s was not timed: %s", node, error)
        return None
    return best


def _seconds_of(node: fx.Node, args: Any, kwargs: Any, device: torch.device) -> float:
    wait = torch.get_device_module(device).synchronize if device.type != "cpu" else None
    if wait is not None:
        wait()
    started = time.perf_counter()
    _call(node, args, kwargs)
    if wait is not None:
        wait()
    return time.perf_counter() - started


def _call(node: fx.Node, args: Any, kwargs: Any) -> Any:
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _new_bytes(result: Any, arguments: Any) -> int:
    given = {t.untyped_storage().data_ptr() for t in _compat.tensors_in(arguments)}
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _compat.tensors_in(result)}
    return sum(size for address, size in found.items() if address not in given)


def _runs_alone(node: fx.Node) -> bool:
    """Tell whether a call can be run with made-up tensors and no consequences."""
    return (
        _compat.is_overload(node.target)
        and getattr(node.target, "namespace", None) in ("aten", "prims", "mkldnn", "onednn")
        and torch.Tag.dynamic_output_shape not in node.target.tags  # type: ignore[union-attr]
        and torch.Tag.data_dependent_output not in node.target.tags  # type: ignore[union-attr]
    )


def _device(node: fx.Node) -> torch.device:
    values = [node.meta.get("val"), *(argument.meta.get("val") for argument in node.all_input_nodes)]
    for value in values:
        for tensor in _compat.tensors_in(value):
            return tensor.device
    return torch.device("cpu")


def _arguments(node: fx.Node) -> tuple[Any, Any]:
    made: dict[fx.Node, Any] = {
        argument: made_up(argument.meta.get("val")) for argument in node.all_input_nodes
    }
    args, kwargs = fx.map_arg((node.args, node.kwargs), made.__getitem__)
    return args, kwargs


def made_up(value: Any) -> Any:
    """Return a value of the same sizes with made-up contents that any operation can take."""
    if isinstance(value, torch.Tensor):
        size = [_compat.size_hint(n) for n in value.size()]
        stride = [_compat.size_hint(n) for n in value.stride()]
        tensor = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
        # Zero is an index into anything; around one half is a probability, and a fair divisor.
        return tensor.uniform_(0.25, 0.75) if value.dtype.is_floating_point else tensor.zero_()
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return _compat.size_hint(value)
    if isinstance(value, (tuple, list)):
        return type(value)(made_up(item) for item in value)
    return value


def _signature(node: fx.Node) -> Any:
    """Return what two calls share that run the same kernels."""

    def described(argument: fx.Node) -> Any:
        return _Described(argument.meta.get("val"))

    return str(node.target), repr(fx.map_arg((node.args, node.kwargs), described))


class _Described:
    """Stands for an argument in the text of a call."""

    def __init__(self, value: Any) -> None:
        self.text = _describe(value)

    def __repr__(self) -> str:
        return self.text


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return f"{value.layout} {value.dtype} {tuple(value.size())}"
        size = tuple(_compat.size_hint(n) for n in value.size())
        stride = tuple(_compat.size_hint(n) for n in value.stride())
        return f"{value.dtype} {value.device} {size} {stride}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_describe, value))})"
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return str(_compat.size_hint(value))
    return repr(value)
