"""The operators that nvFuser computes, and the rules by which nodes of a graph are claimed for it."""

from __future__ import annotations

from aot_partition.nvprims.claims import Claims as Claims
from aot_partition.nvprims.claims import claim as claim
from aot_partition.nvprims.decompositions import nvprims_decompositions as nvprims_decompositions
from aot_partition.nvprims.entry import Kind as Kind
from aot_partition.nvprims.entry import Nvprim as Nvprim
from aot_partition.nvprims.library import as_nvprims as as_nvprims
from aot_partition.nvprims.library import register_nvprims as register_nvprims
from aot_partition.nvprims.table import NVPRIMS as NVPRIMS
from aot_partition.nvprims.table import nvprim_of as nvprim_of
from aot_partition.nvprims.table import recomputable_ops as recomputable_ops

__all__ = [
    "NVPRIMS",
    "Claims",
    "Kind",
    "Nvprim",
    "as_nvprims",
    "claim",
    "nvprim_of",
    "nvprims_decompositions",
    "recomputable_ops",
    "register_nvprims",
]
