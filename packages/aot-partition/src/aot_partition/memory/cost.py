"""How long an operation takes: by a roofline of this machine, measured, or as the caller says.

A roofline needs five numbers of a device, which a calibration of a fraction of a second finds and a file keeps:
what starting a kernel takes, bytes moved a second, floating-point operations of a matrix product a second, elements
of an exponential a second, and random numbers a second. An operation takes the longest of what it needs of the last
four. On a CPU random numbers take twenty times what it takes to move them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from aot_partition import _compat
from aot_partition.memory.kernels import KernelProfile

__all__ = ["Calibration", "CostModel", "Seconds", "calibrate", "cost_function", "roofline_seconds"]

log = logging.getLogger(__name__)

Seconds = Callable[[fx.Node], float]
CostModel = Literal["eager", "profile"] | Seconds

CALIBRATION_SECONDS = 0.05
"""How long each of the measurements lasts, at most by about one run."""

_TRANSCENDENTAL = (
    "exp", "log", "sin", "cos", "tan", "sigmoid", "silu", "gelu", "erf", "softmax", "pow", "rsqrt", "sqrt",
    "mish", "softplus", "norm",
)  # fmt: skip
_FROM_RESULTS = ("softmax", "sigmoid", "norm")
"""Whose gradients need no function of what these operators read, only products."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What a device can do.

    Args:
        launch: Seconds that any operation takes.
        bandwidth: Bytes read and written a second.
        flops: Floating-point operations a second in a matrix product, by dtype's name.
        transcendental: Elements a second of an exponential.
        random: Random numbers a second.
    """

    launch: float
    bandwidth: float
    flops: dict[str, float]
    transcendental: float
    random: float


def cost_function(model: CostModel, joint: fx.GraphModule, profile: KernelProfile) -> Seconds:
    """Return a function that tells how long a node of a joint graph takes, in seconds.

    Args:
        model: ``"eager"`` (the roofline), ``"profile"`` (each distinct operation is run and timed), or a
            function of a node.
        joint: The joint graph.
        profile: Where measured kernels are kept.

    Raises:
        ValueError: the model is none of these.
    """
    if callable(model):
        return model
    if model == "eager":
        return roofline_seconds
    if model != "profile":
        raise ValueError(f"cost_model must be 'eager', 'profile' or a function of a node, got {model!r}")
    profile.timed = True
    profile.measure(joint.graph.nodes)

    def measured(node: fx.Node) -> float:
        seconds = profile.seconds(node)
        return roofline_seconds(node) if seconds is None else seconds

    return measured


def roofline_seconds(node: fx.Node) -> float:
    """Return how long a node takes by the roofline of its device, in seconds."""
    if node.op != "call_function" or not _compat.is_overload(node.target):
        return 0.0
    tensors = _compat.tensors_in(node.meta.get("val"))
    arguments = [t for a in node.all_input_nodes for t in _compat.tensors_in(a.meta.get("val"))]
    if not tensors and not arguments:
        return 0.0
    machine = calibrate((tensors or arguments)[0].device)
    moved = sum(_compat.size_hint(t.numel()) * t.element_size() for t in (*tensors, *arguments))
    seconds = moved / machine.bandwidth
    elements = max(_compat.size_hint(t.numel()) for t in (*tensors, *arguments))
    if _is_transcendental(node.target):
        seconds = max(seconds, elements / machine.transcendental)
    if _is_random(node.target):
        seconds = max(seconds, elements / machine.random)
    flops = _flops(node)
    if flops:
        dtype = str((arguments or tensors)[0].dtype).rpartition(".")[2]
        rate = machine.flops.get(dtype) or machine.flops["float32"]
        seconds = max(seconds, flops / rate)
    return machine.launch + seconds


def _is_transcendental(target: Any) -> bool:
    name = str(target.overloadpacket).rpartition(".")[2]
    if "backward" in name and any(word in name for word in _FROM_RESULTS):
        return False
    return any(word in name for word in _TRANSCENDENTAL)


def _is_random(target: Any) -> bool:
    # Attention is called so for the sake of its dropout, which it mostly does without.
    return torch.Tag.nondeterministic_seeded in target.tags and "scaled_dot_product" not in str(target)


def _flops(node: fx.Node) -> int:
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return _attention_flops(node)
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta.get("val"))
    try:
        return _compat.size_hint(count(*args, **kwargs, out_val=node.meta.get("val")))
    except Exception as error:
        log.debug("flops of %s are not known: %s", node, error)
        return 0


def _attention_flops(node: fx.Node) -> int:
    """Count fused attentions that torch's counter doesn't know, such as the CPU's."""
    name = str(node.target)
    if "scaled_dot_product" not in name:
        return 0
    backward = "backward" in name
    values: list[Any] = [a.meta.get("val") if isinstance(a, fx.Node) else None for a in node.args]
    query, key = values[1:3] if backward else values[0:2]
    if query is None or key is None:
        return 0
    batch, heads, length, width = (_compat.size_hint(n) for n in query.size())
    products = 5 if backward else 2
    return products * 2 * batch * heads * length * _compat.size_hint(key.size(-2)) * width


@functools.cache
def calibrate(device: torch.device) -> Calibration:
    """Return what a device can do, from a file if it was measured before.

    The file lies in ``AOT_PARTITION_CACHE``, by default the user's cache folder. It is keyed by device, number
    of threads and release of torch.
    """
    path = _cache_folder() / "calibration.json"
    key = f"{_device_name(device)} / {torch.get_num_threads()} threads / torch {torch.__version__}"
    known = _read(path)
    found = known.get(key)
    # A release may have measured less.
    if isinstance(found, dict) and found.keys() == {field.name for field in dataclasses.fields(Calibration)}:
        return Calibration(**found)
    with _compat.no_modes(), torch.no_grad(), torch.random.fork_rng():
        measured = _measure(device)
    # Another process may have written since: what it found is kept.
    known = _read(path) | {key: dataclasses.asdict(measured)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(known, indent=1))
        scratch.replace(path)
    except OSError as error:
        log.info("the calibration is not kept: %s", error)
    return measured


def _measure(device: torch.device) -> Calibration:
    small = torch.ones(8, device=device)
    large = torch.rand(1 << 22, device=device)
    few = torch.empty(1 << 16, device=device)
    launch = _fastest(lambda: small + 1, device)
    moved = 2 * large.numel() * large.element_size()
    flops = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        matrix = torch.rand(256, 256, device=device).to(dtype)
        product = functools.partial(torch.mm, matrix, matrix)
        flops[str(dtype).rpartition(".")[2]] = 2 * 256**3 / _fastest(product, device)
    return Calibration(
        launch=launch,
        bandwidth=moved / _fastest(large.clone, device),
        flops=flops,
        transcendental=large.numel() / _fastest(large.exp, device),
        random=few.numel() / _fastest(lambda: few.bernoulli_(0.5), device),
    )


def _fastest(run: Callable[[], Any], device: torch.device) -> float:
    wait = torch.get_device_module(device).synchronize if device.type != "cpu" else lambda: None
    run()
    best = float("inf")
    until = time.perf_counter() + CALIBRATION_SECONDS
    while True:
        wait()
        started = time.perf_counter()
        run()
        wait()
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() >= until:
            return best


def _cache_folder() -> Path:
    given = os.environ.get("AOT_PARTITION_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aot-partition"


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()} {platform.processor()}".strip()


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
