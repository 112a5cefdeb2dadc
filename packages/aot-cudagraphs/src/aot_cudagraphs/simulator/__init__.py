"""CUDA graphs without CUDA: what capture refuses and what replay does, on CPU tensors.

::

    engine = SimulatedEngine()
    x = torch.ones(3)
    recording = engine.record(lambda inputs: [inputs[0] * 2], [x], engine.new_pool())
    recording.outputs[0]      nan: nothing has run
    recording.replay()        2, 2, 2
    x.fill_(5)
    recording.replay()        10, 10, 10, in the same memory

All CPU tensors play memory of the device, but those marked with `as_host`.
"""

from __future__ import annotations

from aot_cudagraphs.simulator.engine import SimulatedEngine as SimulatedEngine
from aot_cudagraphs.simulator.engine import SimulatedRecording as SimulatedRecording
from aot_cudagraphs.simulator.host_memory import as_host as as_host
from aot_cudagraphs.simulator.host_memory import is_host as is_host
from aot_cudagraphs.simulator.pool import SimulatedPool as SimulatedPool
from aot_cudagraphs.simulator.pool import held_bytes as held_bytes
from aot_cudagraphs.simulator.recorder import is_capturing as is_capturing

__all__ = [
    "SimulatedEngine",
    "SimulatedPool",
    "SimulatedRecording",
    "as_host",
    "held_bytes",
    "is_capturing",
    "is_host",
]
