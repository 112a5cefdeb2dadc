"""Partition graphs of training steps: an exact min-cut, a planner of a step's memory, and regions for nvFuser.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core import lazy_names
from aot_partition.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_partition.budget import Budget as Budget
    from aot_partition.budget import format_bytes as format_bytes
    from aot_partition.budget import parse_budget as parse_budget
    from aot_partition.errors import BudgetTooLargeError as BudgetTooLargeError
    from aot_partition.errors import BudgetTooSmallError as BudgetTooSmallError
    from aot_partition.errors import ContradictoryTagsError as ContradictoryTagsError
    from aot_partition.errors import InvalidBudgetError as InvalidBudgetError
    from aot_partition.errors import MissingExtraError as MissingExtraError
    from aot_partition.errors import MissingMetadataError as MissingMetadataError
    from aot_partition.errors import NotDifferentiableError as NotDifferentiableError
    from aot_partition.errors import RanksDisagreeError as RanksDisagreeError
    from aot_partition.errors import RegionFailedError as RegionFailedError
    from aot_partition.errors import TangentOutputError as TangentOutputError
    from aot_partition.errors import UnboundedCutError as UnboundedCutError
    from aot_partition.errors import UnknownExecutorError as UnknownExecutorError
    from aot_partition.errors import UnknownOperatorError as UnknownOperatorError
    from aot_partition.errors import UnusableExecutorError as UnusableExecutorError
    from aot_partition.executors.lookup import find_executor as find_executor
    from aot_partition.executors.protocol import CompiledRegion as CompiledRegion
    from aot_partition.executors.protocol import Executor as Executor
    from aot_partition.executors.run import nvprims_fw_bw_partition_fn as nvprims_fw_bw_partition_fn
    from aot_partition.executors.run import prims_executor as prims_executor
    from aot_partition.executors.settings import NvprimsSettings as NvprimsSettings
    from aot_partition.extract import Assignment as Assignment
    from aot_partition.inductor import MinCutPartitioner as MinCutPartitioner
    from aot_partition.joint_graph import JointGraph as JointGraph
    from aot_partition.memory.comparison import TORCH_BUDGETS as TORCH_BUDGETS
    from aot_partition.memory.comparison import TorchPoint as TorchPoint
    from aot_partition.memory.comparison import torch_points as torch_points
    from aot_partition.memory.kernels import KernelProfile as KernelProfile
    from aot_partition.memory.liveness import NodeMemory as NodeMemory
    from aot_partition.memory.liveness import StepMemory as StepMemory
    from aot_partition.memory.liveness import simulate_step as simulate_step
    from aot_partition.memory.measure import measure_step as measure_step
    from aot_partition.memory.measure import trace_allocations as trace_allocations
    from aot_partition.memory.planner import MemoryPlanner as MemoryPlanner
    from aot_partition.memory.planner import pareto as pareto
    from aot_partition.memory.planner import plan_for_budget as plan_for_budget
    from aot_partition.mincut.eager_rules import default_recomputable_ops as default_recomputable_ops
    from aot_partition.nvprims.claims import Claims as Claims
    from aot_partition.nvprims.claims import claim as claim
    from aot_partition.nvprims_backends import aot_nvprims_aten as aot_nvprims_aten
    from aot_partition.nvprims_backends import aot_nvprims_nvfuser as aot_nvprims_nvfuser
    from aot_partition.nvprims_backends import create_nvprims_backend as create_nvprims_backend
    from aot_partition.partition import min_cut_partition as min_cut_partition
    from aot_partition.pictures import draw as draw
    from aot_partition.pictures import draw_pareto as draw_pareto
    from aot_partition.plan import PartitionPlan as PartitionPlan
    from aot_partition.plan import PlannedValue as PlannedValue
    from aot_partition.regions.find import find_regions as find_regions
    from aot_partition.regions.fuse import fuse_regions as fuse_regions
    from aot_partition.regions.region import Region as Region

_HOMES = {
    "budget": ("Budget", "format_bytes", "parse_budget"),
    "pictures": ("draw", "draw_pareto"),
    "errors": (
        "BudgetTooLargeError",
        "BudgetTooSmallError",
        "ContradictoryTagsError",
        "InvalidBudgetError",
        "MissingExtraError",
        "MissingMetadataError",
        "NotDifferentiableError",
        "RanksDisagreeError",
        "RegionFailedError",
        "TangentOutputError",
        "UnboundedCutError",
        "UnknownExecutorError",
        "UnknownOperatorError",
        "UnusableExecutorError",
    ),
    "executors.lookup": ("find_executor",),
    "executors.protocol": ("CompiledRegion", "Executor"),
    "executors.run": ("nvprims_fw_bw_partition_fn", "prims_executor"),
    "executors.settings": ("NvprimsSettings",),
    "extract": ("Assignment",),
    "inductor": ("MinCutPartitioner",),
    "joint_graph": ("JointGraph",),
    "memory.comparison": ("TORCH_BUDGETS", "TorchPoint", "torch_points"),
    "memory.kernels": ("KernelProfile",),
    "memory.liveness": ("NodeMemory", "StepMemory", "simulate_step"),
    "memory.measure": ("measure_step", "trace_allocations"),
    "memory.planner": ("MemoryPlanner", "pareto", "plan_for_budget"),
    "mincut.eager_rules": ("default_recomputable_ops",),
    "nvprims.claims": ("Claims", "claim"),
    "nvprims_backends": ("aot_nvprims_aten", "aot_nvprims_nvfuser", "create_nvprims_backend"),
    "partition": ("min_cut_partition",),
    "plan": ("PartitionPlan", "PlannedValue"),
    "regions.find": ("find_regions",),
    "regions.fuse": ("fuse_regions",),
    "regions.region": ("Region",),
}
__all__ = sorted(["__version__", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
