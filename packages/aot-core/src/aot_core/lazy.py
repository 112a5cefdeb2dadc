"""Public names of a package, loaded when they are first used, so that importing the package is quick.

::

    # aot_x/__init__.py
    _HOMES = {"backends": ("aot_x",), "errors": ("XError",)}
    __all__ = sorted(name for names in _HOMES.values() for name in names)
    __getattr__ = lazy_names(__name__, _HOMES)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package whose names live in its submodules.

    Args:
        package: Name of the package, its ``__name__``.
        homes: Submodule, relative to the package → names that it has.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        # Kept, so that the next access costs nothing.
        setattr(sys.modules[package], name, value)
        return value

    return load
