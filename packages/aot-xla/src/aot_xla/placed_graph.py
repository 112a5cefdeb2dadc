"""One compiled stage: its inputs brought to XLA, its graph run there, its results brought to where they belong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import fx

from aot_core import boxed, current_compilation
from aot_core.protocol import BoxedCallable
from aot_xla import _compat
from aot_xla.device import Device
from aot_xla.placement import PromisedDtypes, obstacles_to_tracing, place_graph, require_dtypes
from aot_xla.randomness import draws_at_home, seeded_from_torch
from aot_xla.recompilation import Recompilations
from aot_xla.results import plan_results
from aot_xla.settings import XlaSettings
from aot_xla.tally import Tally
from aot_xla.trace_once import TraceOnce, run_at_every_call
from aot_xla.transfer import CopiesOnDevice, Slots
from aot_xla.trivial import Trivial

__all__ = ["compile_for_xla"]

_copies: dict[Device, CopiesOnDevice] = {}


def compile_for_xla(gm: fx.GraphModule, *, trace_once: bool) -> BoxedCallable:
    """Compile one functional graph to run on XLA, wherever its inputs are.

    Args:
        gm: The graph. Not changed.
        trace_once: Trace it once per set of shapes, rather than at each call.

    Raises:
        MissingTorchXlaError, MismatchedTorchXlaError, UnusableXlaError: there is no XLA to run it on.
        UnsupportedDtypeError: XLA takes one of its dtypes for another.
    """
    with _compat.real_tensors():
        device = _compat.open_device()
        require_dtypes(gm, device)
        plan = plan_results(gm, device)
        placed = place_graph(gm, plan.computed, device)
    compilation = current_compilation()
    tally = Tally(compilation.report, compilation.stage)
    recompilations = Recompilations(compilation, tally)

    def compute(values: list[Any]) -> list[Any]:
        return list(PromisedDtypes(placed).run(*values))

    obstacles = obstacles_to_tracing(gm) if trace_once else []
    if obstacles:
        compilation.decide(run_at_every_call(", ".join(obstacles), compilation.stage, compilation.graph))
    run: Callable[[list[Any]], list[Any]]
    if trace_once and not obstacles:
        run = TraceOnce(compute, device, recompilations, compilation)
    else:
        run = Trivial(compute, device, recompilations)

    inputs_to_xla = _Inputs(device, cast(XlaSettings, compilation.settings), tally)
    seeded = draws_at_home(gm, device)

    def call(args: list[Any]) -> Any:
        inputs = list(args)
        args.clear()
        results: list[Any] = []
        with torch.no_grad():
            if plan.computed:
                # What is noted, and the state of random numbers, is the device's and not a thread's.
                seed = seeded_from_torch(device) if seeded else contextlib.nullcontext()
                # Views can't be noted under inference_mode; results are made in the caller's mode below. Leaving
                # it turns gradients on, so they are turned off again.
                with device.lock, torch.inference_mode(False), torch.no_grad(), seed:
                    results = run(inputs_to_xla(inputs))
                tally.add("xla_executions", 1)
            return plan.deliver(inputs, results, device, tally)

    return boxed(call)


class _Inputs:
    """Brings the inputs of one stage's calls to the device."""

    def __init__(self, device: Device, settings: XlaSettings, tally: Tally) -> None:
        self._device = device
        self._copies = _copies.setdefault(device, CopiesOnDevice(device))
        self._compare_contents = settings.detect_writes == "contents"
        self._tally = tally
        self._slots = Slots()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values = list(inputs)
        elsewhere = [
            i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and not self._device.holds(x)
        ]
        if elsewhere:
            copies, moved = self._copies.of(
                [inputs[i] for i in elsewhere], self._slots, compare_contents=self._compare_contents
            )
            self._tally.add_transfers("to_xla", moved)
            for i, copy in zip(elsewhere, copies, strict=True):
                values[i] = copy
        return values
