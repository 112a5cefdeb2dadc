"""The op set: every entry, and the entry of an operator."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aot_partition.nvprims import creation, further, indexing, moves, pointwise, products, reductions
from aot_partition.nvprims.entry import Nvprim

__all__ = ["NVPRIMS", "nvprim_of", "recomputable_ops"]

NVPRIMS: Mapping[str, Nvprim] = MappingProxyType(
    {
        entry.name: entry
        for family in (pointwise, reductions, moves, creation, indexing, products, further)
        for entry in family.ENTRIES
    }
)
"""Every entry of the op set, by name."""

_BY_TARGET = {target: entry for entry in NVPRIMS.values() for target in entry.targets}


def nvprim_of(target: Any) -> Nvprim | None:
    """Return the entry that an operator of ATen belongs to, or None."""
    return _BY_TARGET.get(target)


@functools.cache
def recomputable_ops() -> frozenset[Any]:
    """Return the operators that a partitioner may compute again, for `aot_partition.min_cut_partition`."""
    return frozenset(target for entry in NVPRIMS.values() if entry.recomputable for target in entry.targets)
