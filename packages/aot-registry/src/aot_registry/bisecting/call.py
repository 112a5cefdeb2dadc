"""One call that tells which stage of a compile, which graph and which node breaks a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from aot_registry import _compat
from aot_registry.bisecting import reproducer
from aot_registry.bisecting.blame import blame
from aot_registry.bisecting.copies import Subject
from aot_registry.bisecting.errors import InvalidSubjectError
from aot_registry.bisecting.result import BisectResult
from aot_registry.bisecting.stages import Advance, Bench, first_failing_stage
from aot_registry.resolving import resolve_backend

__all__ = ["bisect"]


def bisect(
    model: Callable[..., Any],
    inputs: Any,
    backend: str | Callable[..., Any],
    *,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
    target: Any = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    reproducer_path: str | Path | None = None,
    advance: Advance = lambda what, steps: None,
) -> BisectResult:
    """Tell which stage of a compile, which graph and which node make a model err or drift from eager.

    The model runs in eager twice, in float64, then compiled up to each stage in turn, always on copies and from one
    seed. Compared are outputs, gradients, parameters, buffers and inputs after the call, and the state of random
    numbers. A value fails when its error exceeds ten times eager's own, and a floor; see
    `aot_registry.bisecting.tolerance`. The first stage that fails is then narrowed down to a graph and a node.

    Code that this process has compiled before is forgotten, as by ``torch.compiler.reset()``. Each run needs as much
    memory as the model, the float64 one twice that.

    Args:
        model: A module, or another callable. It is called in the grad mode of the caller.
        inputs: A tuple of positional arguments, a dictionary of keyword arguments, or one argument.
        backend: A backend, its name as for ``torch.compile``, or ``"module:attribute"``.
        loss_fn: ``loss_fn(output, target)`` gives the loss, of which the gradients are taken. Without, random
            cotangents are handed to all outputs.
        target: The second argument of ``loss_fn``.
        options: As for ``torch.compile``.
        seed: Of random numbers and cotangents.
        reproducer_path: Where to write a file that shows the fault by itself; None: nowhere.
        advance: ``advance(what, steps)`` is told what goes on.

    Raises:
        InvalidSubjectError: the model can't be called or copied, or the backend can't be imported or called.
        EagerFailureError: it fails in eager.
        UnknownBackendError: there is no such backend.
    """
    if not callable(model):
        raise InvalidSubjectError(f"Expected a module or another callable, got a {type(model).__name__}.")
    name, compile_graph = resolve_backend(backend)
    subject = Subject(model, inputs, loss_fn, target)
    with _compat.bisect_config():
        try:
            bench = Bench(subject, compile_graph, options=options, seed=seed, advance=advance)
            found = first_failing_stage(bench)
            culprit = None if found.stage is None else blame(bench, found)
            path, reproduces = None, None
            if reproducer_path is not None and culprit is not None:
                written = reproducer.write(bench, found, culprit, backend, Path(reproducer_path), name=name)
                path, reproduces = (None, None) if written is None else (str(reproducer_path), written)
        finally:
            torch.compiler.reset()
    return BisectResult(
        backend=name,
        torch_version=torch.__version__,
        seed=seed,
        reference="eager" if bench.yardstick.exact is None else "float64",
        stages=tuple(found.results),
        stage=found.stage,
        culprit=culprit,
        runs=bench.runs,
        reproducer=path,
        reproduces=reproduces,
    )
