"""Partition joint graphs of training steps: an exact min-cut, and a planner of a step's memory.

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
    from aot_partition.errors import TangentOutputError as TangentOutputError
    from aot_partition.errors import UnboundedCutError as UnboundedCutError
    from aot_partition.errors import UnknownOperatorError as UnknownOperatorError
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
    from aot_partition.partition import min_cut_partition as min_cut_partition
    from aot_partition.pictures import draw as draw
    from aot_partition.pictures import draw_pareto as draw_pareto
    from aot_partition.plan import PartitionPlan as PartitionPlan
    from aot_partition.plan import PlannedValue as PlannedValue

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
        "TangentOutputError",
        "UnboundedCutError",
        "UnknownOperatorError",
    ),
    "extract": ("Assignment",),
    "inductor": ("MinCutPartitioner",),
    "joint_graph": ("JointGraph",),
    "memory.comparison": ("TORCH_BUDGETS", "TorchPoint", "torch_points"),
    "memory.kernels": ("KernelProfile",),
    "memory.liveness": ("NodeMemory", "StepMemory", "simulate_step"),
    "memory.measure": ("measure_step", "trace_allocations"),
    "memory.planner": ("MemoryPlanner", "pareto", "plan_for_budget"),
    "mincut.eager_rules": ("default_recomputable_ops",),
    "partition": ("min_cut_partition",),
    "plan": ("PartitionPlan", "PlannedValue"),
}
__all__ = sorted(["__version__", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
