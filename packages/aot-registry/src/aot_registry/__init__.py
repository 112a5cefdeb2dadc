"""Find, check and override ``torch.compile`` backends.

Importing this package never imports torch; its names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aot_registry.__about__ import __version__

if TYPE_CHECKING:
    from aot_registry.activation import Activation, activate
    from aot_registry.backends import BACKENDS, get_backend, list_backends, load_all, probe
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
    "BrokenBackendError",
    "DuplicateBackendError",
    "InvalidBackendError",
    "OverrideConflictError",
    "UnknownBackendError",
    "UnknownOverrideError",
    "UnsupportedTorchError",
    "__version__",
    "activate",
    "get_backend",
    "list_backends",
    "load_all",
    "probe",
    "register_backend",
    "register_debug_backend",
    "unregister_backend",
]

_HOMES = {
    "aot_registry.activation": ("Activation", "activate"),
    "aot_registry.backends": ("BACKENDS", "get_backend", "list_backends", "load_all", "probe"),
    "aot_registry.errors": (
        "BrokenBackendError",
        "DuplicateBackendError",
        "InvalidBackendError",
        "OverrideConflictError",
        "UnknownBackendError",
        "UnknownOverrideError",
        "UnsupportedTorchError",
    ),
    "aot_registry.registration": ("register_backend", "register_debug_backend", "unregister_backend"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
