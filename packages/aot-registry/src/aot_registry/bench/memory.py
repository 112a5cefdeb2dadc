"""Peak memory of a training step, in bytes, as the allocator saw it.

A step's peak is what lives between steps (parameters, buffers, optimizer state, the batch; see
`TrainingRun.state_bytes`) plus the most that was allocated on top at any moment of the step: activations,
gradients, workspaces. The second part is read off the allocator:

- On CUDA from ``torch.cuda.max_memory_allocated``, less what was allocated when the step began. (Models of
  other contenders lie on the same device, so the bare maximum would say little.)
- On CPU from the memory events of ``torch.profiler``, one per allocation and release, each with the number
  of bytes allocated so far. The allocator sees compiled code as well as eager kernels; a dispatch mode would
  not do, because Dynamo runs the uncompiled model under one.

What a backend allocates outside of torch's allocators, or keeps from an earlier step (the pool of a CUDA
graph, say), is not seen. The measurement slows a step down, so it has a step of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from aot_registry.bench.training import TrainingRun

__all__ = ["measure_peak_bytes", "peak_increase", "peak_of_events"]

CPU_DEVICE_TYPE = 0
"""As the profiler numbers kinds of devices."""


def measure_peak_bytes(run: TrainingRun) -> int | None:
    """Return the peak of one further step of ``run`` in bytes; None where the allocator can't be observed."""
    device = run.workload.device
    increase = run.probe_step(lambda step: peak_increase(step, device))
    return None if increase is None else run.state_bytes() + increase


def peak_increase(action: Callable[[], None], device: torch.device) -> int | None:
    """Run ``action`` and return by how many bytes the allocated memory rose at most while it ran.

    Returns:
        Bytes, or None on a device other than CPU and CUDA and in a torch built without a profiler.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before: int = torch.cuda.memory_allocated(device)
        action()
        torch.cuda.synchronize(device)
        peak: int = torch.cuda.max_memory_allocated(device)
        return peak - before
    cpu = torch.profiler.ProfilerActivity.CPU
    if device.type != "cpu" or cpu not in torch.profiler.supported_activities():  # type: ignore[no-untyped-call]
        action()
        return None
    # acc_events keeps torch from warning that events are cleared at the end of a cycle; there is only one.
    with (
        _silent_profiler(),
        torch.profiler.profile(activities=[cpu], profile_memory=True, acc_events=True) as profile,
    ):
        action()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return peak_of_events(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def peak_of_events(events: Sequence[Mapping[str, Any]]) -> int:
    """Return by how many bytes allocated CPU memory rose over the first memory event of a profiler trace.

    Works on the totals in the events and not on their sum: totals are counted under the allocator's lock,
    while events of two threads may carry times in another order.
    """
    memory = [
        event
        for event in events
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == CPU_DEVICE_TYPE
    ]
    if not memory:
        return 0
    first = min(memory, key=lambda event: (event["ts"], event["args"].get("Ev Idx", 0)))["args"]
    before = int(first["Total Allocated"]) - int(first["Bytes"])
    return max(before, *(int(event["args"]["Total Allocated"]) for event in memory)) - before


@contextlib.contextmanager
def _silent_profiler() -> Iterator[None]:
    """Keep libkineto from printing its stages to stderr, in the middle of a progress bar.

    It reads the variable when it logs for the first time.
    """
    if "KINETO_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        del os.environ["KINETO_LOG_LEVEL"]
