"""Capture a model's graphs as CUDA graphs and replay them, or simulate that on a machine without a GPU.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core import lazy_names
from aot_cudagraphs.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_cudagraphs.backends import aot_cudagraphs as aot_cudagraphs
    from aot_cudagraphs.captured import CapturedGraph as CapturedGraph
    from aot_cudagraphs.captured import apply_cuda_graphs as apply_cuda_graphs
    from aot_cudagraphs.captured import captured_graphs as captured_graphs
    from aot_cudagraphs.engine import Engine as Engine
    from aot_cudagraphs.engine import Pool as Pool
    from aot_cudagraphs.engine import Recording as Recording
    from aot_cudagraphs.errors import ArgumentCountError as ArgumentCountError
    from aot_cudagraphs.errors import CaptureFailedError as CaptureFailedError
    from aot_cudagraphs.errors import CaptureRefusedError as CaptureRefusedError
    from aot_cudagraphs.errors import FreedMemoryError as FreedMemoryError
    from aot_cudagraphs.errors import ReleasedRecordingError as ReleasedRecordingError
    from aot_cudagraphs.errors import ReplayMismatchError as ReplayMismatchError
    from aot_cudagraphs.errors import RequiresGradientError as RequiresGradientError
    from aot_cudagraphs.islands import Partition as Partition
    from aot_cudagraphs.islands import RefusedNode as RefusedNode
    from aot_cudagraphs.islands import partition as partition
    from aot_cudagraphs.lanes import held_bytes as held_bytes
    from aot_cudagraphs.lanes import reset as reset
    from aot_cudagraphs.module import CudaGraphModule as CudaGraphModule
    from aot_cudagraphs.refusals import Refusal as Refusal
    from aot_cudagraphs.refusals import refusal_of_call as refusal_of_call
    from aot_cudagraphs.refusals import refusal_of_node as refusal_of_node
    from aot_cudagraphs.settings import CaptureSettings as CaptureSettings

_HOMES = {
    "backends": ("aot_cudagraphs",),
    "captured": ("CapturedGraph", "apply_cuda_graphs", "captured_graphs"),
    "engine": ("Engine", "Pool", "Recording"),
    "errors": (
        "ArgumentCountError",
        "CaptureFailedError",
        "CaptureRefusedError",
        "FreedMemoryError",
        "ReleasedRecordingError",
        "ReplayMismatchError",
        "RequiresGradientError",
    ),
    "islands": ("Partition", "RefusedNode", "partition"),
    "lanes": ("held_bytes", "reset"),
    "module": ("CudaGraphModule",),
    "refusals": ("Refusal", "refusal_of_call", "refusal_of_node"),
    "settings": ("CaptureSettings",),
}
__all__ = sorted(["__version__", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
