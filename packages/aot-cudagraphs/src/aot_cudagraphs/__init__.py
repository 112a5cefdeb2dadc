"""Capture a model's graphs as CUDA graphs and replay them, or simulate that on a machine without a GPU.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aot_cudagraphs.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_cudagraphs.engine import Engine as Engine
    from aot_cudagraphs.engine import Pool as Pool
    from aot_cudagraphs.engine import Recording as Recording
    from aot_cudagraphs.errors import CaptureRefusedError as CaptureRefusedError
    from aot_cudagraphs.errors import FreedMemoryError as FreedMemoryError
    from aot_cudagraphs.errors import ReleasedRecordingError as ReleasedRecordingError
    from aot_cudagraphs.errors import ReplayMismatchError as ReplayMismatchError
    from aot_cudagraphs.refusals import Refusal as Refusal
    from aot_cudagraphs.refusals import refusal_of_call as refusal_of_call
    from aot_cudagraphs.refusals import refusal_of_node as refusal_of_node

_HOMES = {
    "engine": ("Engine", "Pool", "Recording"),
    "errors": (
        "CaptureRefusedError",
        "FreedMemoryError",
        "ReleasedRecordingError",
        "ReplayMismatchError",
    ),
    "refusals": ("Refusal", "refusal_of_call", "refusal_of_node"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["__version__", *_HOME_OF])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    # Kept, so that the next access costs nothing.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
