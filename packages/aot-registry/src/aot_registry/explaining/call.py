"""Explaining one call of a model under a backend, and recording its compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import aot_core
from aot_core import CompileReport, Explanation
from aot_core.errors import AotError
from aot_registry.bench.rng import isolated_rng
from aot_registry.bench.workloads.workload import call_model
from aot_registry.explaining.analyses import step_analyses
from aot_registry.explaining.errors import ExplainedCallError, UnexplainableBackendError
from aot_registry.resolving import resolve_backend

__all__ = ["Explained", "explain_model"]


class Explained(NamedTuple):
    """An explanation, and the reports of the compiles that it tells of."""

    explanation: Explanation
    reports: list[CompileReport]


def explain_model(
    model: Callable[..., Any],
    inputs: Any,
    backend: str | Callable[..., Any],
    *,
    seed: int = 0,
    inference: bool = False,
) -> Explained:
    """Explain a call, with all analyses that are installed.

    Args:
        model: A module, or another callable. A copy of it is called.
        inputs: A tensor, a tuple of positional arguments or a dictionary of keyword arguments.
        backend: A backend, its name, or ``"module:attribute"``.
        seed: Of random numbers.
        inference: Call it without gradients.

    Raises:
        UnknownBackendError, InvalidSubjectError: there is no such backend.
        UnexplainableBackendError: it is not one of `aot_core.aot_autograd`.
        ExplainedCallError: the model raises.
        AotError: see `aot_core.explain_with`.
    """
    name, found = resolve_backend(backend)
    if not isinstance(found, aot_core.Backend):
        raise UnexplainableBackendError(
            f"Backend {name!r} was not made by aot_core.aot_autograd, and what it does can't be looked into. Of "
            "torch's own, aot_core_eager comes closest to aot_eager, and aot_inductor_debug to inductor. `aot list "
            "--all` names those that are installed."
        )
    explain = aot_core.explain_with(found, analyses=step_analyses())
    with isolated_rng(seed), aot_core.record_reports() as reports, torch.set_grad_enabled(not inference):
        try:
            explanation = call_model(lambda *args, **kwargs: explain(model, *args, **kwargs), inputs)
        except AotError:
            raise
        except Exception as error:
            raise ExplainedCallError(
                f"The model raised {type(error).__name__}: {error}. Call it without torch.compile first."
            ) from error
    return Explained(explanation, reports)
