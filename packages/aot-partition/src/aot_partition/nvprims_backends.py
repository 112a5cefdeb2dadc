"""The backends ``nvprims_nvfuser`` and ``nvprims_aten``, and a function that makes more of their kind.

::

    AOTAutograd traces with decompositions chosen by claim
      ▼
    joint graph ─ claims, min-cut with recomputable nvprims ─> forward, backward: nodes marked
      ▼
    regions ─ executor ─> one call each; the rest runs as it is
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any

import aot_core
from aot_core.settings import parse_settings
from aot_partition.executors.lookup import find_executor
from aot_partition.executors.protocol import Executor
from aot_partition.executors.run import decompositions_for, nvprims_fw_bw_partition_fn, prims_executor
from aot_partition.executors.settings import NvprimsSettings

__all__ = ["aot_nvprims_aten", "aot_nvprims_nvfuser", "create_nvprims_backend"]


def create_nvprims_backend(
    *, executor: str | Executor = "nvfuser", name: str | None = None, **options: Any
) -> aot_core.Backend:
    """Make a backend that runs the claimed regions of a model with an executor.

    Args:
        executor: ``"nvfuser"``, ``"aten"``, the ``"module:attribute"`` of an executor, or an object that is one
            (`aot_partition.executors.Executor`). A name is looked up when something is first compiled.
        name: What the backend is called in reports; by default ``nvprims_`` and the executor's name.
        **options: Defaults for the options of the backend; see `NvprimsSettings`.

    Returns:
        A backend for ``torch.compile``. Keep it: torch compiles anew for each new one.

    Raises:
        UnknownExecutorError: an object that is no executor.
        UnknownOptionError, InvalidOptionValueError: as for options given to ``torch.compile``.
    """
    if not isinstance(executor, str):
        find_executor(executor)
    if name is None:
        label = executor if isinstance(executor, str) else executor.name
        name = "nvprims_" + label.rpartition(":")[2].rpartition(".")[2]
    return aot_core.aot_autograd(
        name=name,
        fw_compiler=functools.partial(prims_executor, executor=executor),
        partition_fn=functools.partial(nvprims_fw_bw_partition_fn, executor=executor),
        decompositions=_decompositions(executor),
        settings=_with_defaults(name, options),
        tags=("training", "inference", "cuda")
        if executor == "nvfuser"
        else ("training", "inference", "cpu", "cuda"),
        keep_inference_input_mutations=True,
    )


def _decompositions(executor: str | Executor) -> Callable[[], dict[Any, Callable[..., Any]]]:
    return lambda: decompositions_for(find_executor(executor))


def _with_defaults(name: str, options: dict[str, Any]) -> type[NvprimsSettings]:
    """Return the class of options with other defaults."""
    if not options:
        return NvprimsSettings
    checked = parse_settings(NvprimsSettings, options, backend=name)
    hints = typing.get_type_hints(NvprimsSettings)
    values = {key: getattr(checked, key) for key in options}
    # A list may not be a default as it is.
    fields = [
        (key, hints[key], dataclasses.field(default_factory=functools.partial(_same, value)))
        for key, value in values.items()
    ]
    return dataclasses.make_dataclass("NvprimsSettings", fields, bases=(NvprimsSettings,), frozen=True)


def _same(value: Any) -> Any:
    return value


aot_nvprims_nvfuser = create_nvprims_backend(executor="nvfuser")
aot_nvprims_aten = create_nvprims_backend(executor="aten")
