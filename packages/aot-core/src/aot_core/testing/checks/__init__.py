"""The checks, a module per theme. Importing this package registers them all."""

from __future__ import annotations

from aot_core.testing.checks import (
    aliasing,
    autocast,
    autograd,
    dtypes,
    layout,
    modules,
    mutation,
    randomness,
    runtime,
    shapes,
    structure,
)

__all__ = ["THEMES"]

THEMES = tuple(
    module.__name__.rpartition(".")[2]
    for module in (
        autograd,
        mutation,
        aliasing,
        layout,
        dtypes,
        autocast,
        shapes,
        structure,
        randomness,
        modules,
        runtime,
    )
)
"""Names of the themes, in the order of the capability table."""
