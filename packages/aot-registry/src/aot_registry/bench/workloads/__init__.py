"""The workloads by name. Importing this package imports neither torch nor any data set."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aot_registry.bench.errors import UnknownWorkloadError, UnusableDeviceError
from aot_registry.errors import suggest

if TYPE_CHECKING:
    from aot_registry.bench.workloads.workload import Workload

__all__ = ["SHIPPED_WORKLOADS", "build_workload", "check_workload_name"]

SHIPPED_WORKLOADS = {
    "digits-conv": "aot_registry.bench.workloads.digits_conv",
    "text-gpt": "aot_registry.bench.workloads.text_gpt",
}
"""Workloads that ship, and the module whose ``build()`` makes each."""


def check_workload_name(name: str) -> None:
    """Check that a name means a workload, without building it and without importing torch.

    Raises:
        UnknownWorkloadError: it does not; names the closest ones.
        WorkloadFileError: it reads ``FILE.py:function`` and there is no such file.
    """
    if name in SHIPPED_WORKLOADS:
        return
    if ":" in name or name.endswith(".py"):
        # Imported here: the shipped workloads need nothing from it.
        from aot_registry.bench.workloads import user_file

        user_file.parse_reference(name)
        return
    raise UnknownWorkloadError(
        f"There is no workload {name!r}.{suggest(name, SHIPPED_WORKLOADS)} "
        f"Workloads that ship: {', '.join(SHIPPED_WORKLOADS)}. "
        "For a model of your own write FILE.py:build, where build() returns (model, batches, loss_fn)."
    )


def build_workload(name: str, *, seed: int, device: str | None = None) -> Workload:
    """Build a workload: the same model and the same batches for the same seed.

    Args:
        name: One of `SHIPPED_WORKLOADS`, or ``FILE.py:function``.
        seed: Seeds the parameters and the choice of batches.
        device: Where to put model and batches. By default a shipped workload goes to the accelerator if
            there is one, and a user's stays where ``build()`` put it.

    Raises:
        UnknownWorkloadError: no such workload.
        MissingWorkloadDataError: its data is not installed.
        UnusableDeviceError: there is no such device.
        WorkloadFileError, WorkloadBuildError, WorkloadContractError: see `user_file`.
    """
    check_workload_name(name)
    import torch

    from aot_registry.bench.rng import isolated_rng

    with isolated_rng(seed):
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if name in SHIPPED_WORKLOADS:
            workload: Workload = importlib.import_module(SHIPPED_WORKLOADS[name]).build(seed)
            device = device or str(accelerator or "cpu")
        else:
            from aot_registry.bench.workloads import user_file

            workload = user_file.build(name)
    if device is None:
        return workload
    try:
        return workload.to(device)
    # AssertionError: a torch built without CUDA.
    except (RuntimeError, AssertionError) as error:
        raise UnusableDeviceError(
            f"Can't move workload {name} to device {device!r}: {str(error).splitlines()[0].rstrip('.')}. "
            f"Usable here: {', '.join(['cpu', *([str(accelerator)] if accelerator else [])])}."
        ) from error
