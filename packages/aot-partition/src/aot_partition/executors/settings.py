"""The options of the nvprims backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import aot_core
from aot_partition.nvprims.claims import skipped_overloads
from aot_partition.nvprims.products import OPTIONS

__all__ = ["NvprimsSettings"]


@dataclasses.dataclass(frozen=True)
class NvprimsSettings(aot_core.Settings):
    """Options of ``nvprims_nvfuser`` and ``nvprims_aten``.

    Args:
        skip_ops: Operators that are left to ATen and not taken apart: ``"aten.gelu"``, ``"aten.add.Tensor"``, or
            operators of torch themselves.
        matmul: Claim matrix products (``mm``, ``bmm``) too.
        linear: Claim products with a bias (``addmm``) too.
        sdpa: Claim attention (flash attention, in graphs of inference) too.
        horizontal: Put operators that have nothing to do with each other into one region where they may run at
            the same time.
        repro: A folder for files that reproduce the failure of a region: one a region, each a program. None writes
            none.
    """

    skip_ops: Collection[Any] = ()
    matmul: bool = False
    linear: bool = False
    sdpa: bool = False
    horizontal: bool = True
    repro: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.skip_ops, str):
            raise ValueError(f"skip_ops expects a list of operators, got the text {self.skip_ops!r}")
        skipped_overloads(self.skip_ops)

    @property
    def allow(self) -> tuple[str, ...]:
        """The options among ``matmul``, ``linear`` and ``sdpa`` that are on."""
        return tuple(name for name in OPTIONS if getattr(self, name))
