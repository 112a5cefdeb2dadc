"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core import torch_availability
from aot_core.protocol import Availability, BackendInfo

__all__ = ["AOT_MEM_EFFICIENT", "NVPRIMS_ATEN", "NVPRIMS_NVFUSER", "probe", "probe_nvfuser"]

AOT_MEM_EFFICIENT = BackendInfo(
    name="aot_mem_efficient",
    target="aot_partition.backends:aot_mem_efficient",
    summary="Eager kernels with planned memory: what the backward needs is saved or recomputed within a budget",
    tags=("training", "inference", "cpu", "cuda"),
    probe="aot_partition.info:probe",
)

NVPRIMS_NVFUSER = BackendInfo(
    name="nvprims_nvfuser",
    target="aot_partition.nvprims_backends:aot_nvprims_nvfuser",
    summary="Pointwise operators, reductions and norms fused by nvFuser, forward and backward",
    tags=("training", "inference", "cuda"),
    probe="aot_partition.info:probe_nvfuser",
)

NVPRIMS_ATEN = BackendInfo(
    name="nvprims_aten",
    target="aot_partition.nvprims_backends:aot_nvprims_aten",
    summary="The regions of nvprims_nvfuser on eager kernels: tells faults of the partition from faults of the fuser",
    tags=("training", "inference", "debug", "cpu", "cuda"),
    probe="aot_partition.info:probe",
)


def probe() -> Availability:
    """Tell whether this torch has what the partitioner needs."""
    return torch_availability("aot_partition._compat", remedy="Install torch>=2.10,<2.16.")


def probe_nvfuser() -> Availability:
    """Tell whether nvFuser can compile and run here."""
    found = probe()
    if not found.usable:
        return found
    # Imported here: a listing imports this module and must not import torch.
    from aot_partition.executors import find_executor

    return find_executor("nvfuser").availability()
