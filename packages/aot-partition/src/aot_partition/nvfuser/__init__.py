"""The executor ``nvfuser``: regions as fusions of nvFuser, and checks of them without a GPU.

Importing this package imports neither torch nor nvFuser.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core import lazy_names

if TYPE_CHECKING:
    from aot_partition.nvfuser.claims import ClaimRules as ClaimRules
    from aot_partition.nvfuser.definition import Definition as Definition
    from aot_partition.nvfuser.executor import NvFuserExecutor as NvFuserExecutor
    from aot_partition.nvfuser.testing.engines import PrintedEngine as PrintedEngine
    from aot_partition.nvfuser.testing.engines import ReferenceEngine as ReferenceEngine

_HOMES = {
    "claims": ("ClaimRules",),
    "definition": ("Definition",),
    "executor": ("NvFuserExecutor",),
    "testing.engines": ("PrintedEngine", "ReferenceEngine"),
}
__all__ = sorted(itertools.chain(*_HOMES.values()))

__getattr__ = lazy_names(__name__, _HOMES)
