"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core import torch_availability
from aot_core.protocol import Availability, BackendInfo

__all__ = ["AOT_MEM_EFFICIENT", "probe"]

AOT_MEM_EFFICIENT = BackendInfo(
    name="aot_mem_efficient",
    target="aot_partition.backends:aot_mem_efficient",
    summary="Eager kernels with planned memory: what the backward needs is saved or recomputed within a budget",
    tags=("training", "inference", "cpu", "cuda"),
    probe="aot_partition.info:probe",
)


def probe() -> Availability:
    """Tell whether this torch has what the partitioner needs."""
    return torch_availability("aot_partition._compat", remedy="Install torch>=2.10,<2.16.")
