"""Find, check and override ``torch.compile`` backends.

Importing this package never imports torch; its names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot_core import lazy_names
from aot_registry.__about__ import __version__

if TYPE_CHECKING:
    from aot_registry.activation import Activation, activate
    from aot_registry.backends import BACKENDS, get_backend, list_backends, load_all, probe
    from aot_registry.bisecting.call import bisect
    from aot_registry.bisecting.result import BisectResult
    from aot_registry.errors import (
        BrokenBackendError,
        DuplicateBackendError,
        InvalidBackendError,
        OverrideConflictError,
        UnknownBackendError,
        UnknownOverrideError,
        UnsupportedTorchError,
    )
    from aot_registry.registration import register_backend, register_debug_backend, unregister_backend

__all__ = [
    "BACKENDS",
    "Activation",
    "BisectResult",
    "BrokenBackendError",
    "DuplicateBackendError",
    "InvalidBackendError",
    "OverrideConflictError",
    "UnknownBackendError",
    "UnknownOverrideError",
    "UnsupportedTorchError",
    "__version__",
    "activate",
    "bisect",
    "get_backend",
    "list_backends",
    "load_all",
    "probe",
    "register_backend",
    "register_debug_backend",
    "unregister_backend",
]

_HOMES = {
    "activation": ("Activation", "activate"),
    "backends": ("BACKENDS", "get_backend", "list_backends", "load_all", "probe"),
    "bisecting.call": ("bisect",),
    "bisecting.result": ("BisectResult",),
    "errors": (
        "BrokenBackendError",
        "DuplicateBackendError",
        "InvalidBackendError",
        "OverrideConflictError",
        "UnknownBackendError",
        "UnknownOverrideError",
        "UnsupportedTorchError",
    ),
    "registration": ("register_backend", "register_debug_backend", "unregister_backend"),
}
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
