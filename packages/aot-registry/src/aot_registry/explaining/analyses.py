"""Analyses of a training step that installed packages bring, found by entry point and loaded at first need."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot_core import StepAnalysis

__all__ = ["GROUP", "step_analyses"]

GROUP = "aot_step_analyses"
"""Entry points whose values are an `aot_core.StepAnalysis` each. ``memory`` is what pages draw as memory."""


def step_analyses() -> dict[str, StepAnalysis]:
    """Return the installed analyses by the names of their entry points. None is imported before it is called."""
    return {entry.name: _loaded_when_called(entry) for entry in importlib.metadata.entry_points(group=GROUP)}


def _loaded_when_called(entry: importlib.metadata.EntryPoint) -> StepAnalysis:
    # What fails to load fails inside explain, which tells of it and goes on.
    def analyse(forward: Any, backward: Any, num_fwd_outputs: int, /) -> Any:
        return entry.load()(forward, backward, num_fwd_outputs)

    return analyse
