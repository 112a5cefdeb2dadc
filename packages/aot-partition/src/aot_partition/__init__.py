"""Partition joint graphs of training steps: an exact min-cut, and a planner of a step's memory.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aot_partition.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_partition.errors import ContradictoryTagsError as ContradictoryTagsError
    from aot_partition.errors import InvalidBudgetError as InvalidBudgetError
    from aot_partition.errors import MissingMetadataError as MissingMetadataError
    from aot_partition.errors import NotDifferentiableError as NotDifferentiableError
    from aot_partition.errors import TangentOutputError as TangentOutputError
    from aot_partition.errors import UnboundedCutError as UnboundedCutError
    from aot_partition.errors import UnknownOperatorError as UnknownOperatorError
    from aot_partition.extract import Assignment as Assignment
    from aot_partition.extract import extract as extract
    from aot_partition.inductor import MinCutPartitioner as MinCutPartitioner
    from aot_partition.joint_graph import JointGraph as JointGraph
    from aot_partition.mincut.eager_rules import (
        default_recomputable_ops as default_recomputable_ops,
    )
    from aot_partition.partition import min_cut_partition as min_cut_partition

_HOMES = {
    "errors": (
        "ContradictoryTagsError",
        "InvalidBudgetError",
        "MissingMetadataError",
        "NotDifferentiableError",
        "TangentOutputError",
        "UnboundedCutError",
        "UnknownOperatorError",
    ),
    "extract": ("Assignment", "extract"),
    "inductor": ("MinCutPartitioner",),
    "joint_graph": ("JointGraph",),
    "mincut.eager_rules": ("default_recomputable_ops",),
    "partition": ("min_cut_partition",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["__version__", *_HOME_OF])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    # Kept, so that the next access costs nothing.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
