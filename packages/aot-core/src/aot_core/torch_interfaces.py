"""Whether the installed torch has the private interfaces that a package of ours needs. Imports without torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from aot_core.protocol import Availability

__all__ = ["missing_interfaces", "torch_availability"]


def missing_interfaces(required: Iterable[tuple[str, str]]) -> list[str]:
    """Return what this torch lacks, as ``module.name``.

    Args:
        required: Modules and names in them that a package needs.
    """
    missing = []
    for module, name in required:
        try:
            found = hasattr(importlib.import_module(module), name)
        except ImportError:
            found = False
        if not found:
            missing.append(f"{module}.{name}")
    return missing


def torch_availability(compat: str, *, remedy: str) -> Availability:
    """Tell whether torch imports and has what a package needs, for the package's probe.

    Args:
        compat: The package's module for private interfaces, ``"aot_x._compat"``, with a list ``REQUIRED`` of modules
            and names. It is imported.
        remedy: What to do if not: which torch to install.
    """
    try:
        import torch

        required = importlib.import_module(compat).REQUIRED
    except Exception as error:
        return Availability(False, f"{type(error).__name__}: {error}", remedy)
    missing = missing_interfaces(required)
    if missing:
        return Availability(False, f"torch {torch.__version__} lacks {', '.join(missing)}", remedy)
    return Availability(True, f"torch {torch.__version__}")
