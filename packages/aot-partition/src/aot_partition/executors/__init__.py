"""What runs regions: the protocol, the executor ``aten``, and executors by name."""

from __future__ import annotations

from aot_partition.executors.lookup import find_executor as find_executor
from aot_partition.executors.protocol import CompiledRegion as CompiledRegion
from aot_partition.executors.protocol import Executor as Executor

__all__ = ["CompiledRegion", "Executor", "find_executor"]
