"""Entries that multiply matrices or attend. Libraries are mostly faster, so each waits for an option."""

from __future__ import annotations

from aot_partition.nvprims.common_rules import floating
from aot_partition.nvprims.entry import Kind, Nvprim, overloads

__all__ = ["ENTRIES", "OPTIONS"]

OPTIONS = ("matmul", "linear", "sdpa")
"""Names of the options that let products be claimed."""


def _product(name: str, *targets: str, option: str) -> Nvprim:
    return Nvprim(
        name,
        tuple(overload for target in targets for overload in overloads(target)),
        Kind.MATMUL,
        recomputable=False,
        rule=floating,
        pays_alone=True,
        option=option,
    )


ENTRIES = (
    _product("matmul", "mm", "bmm", option="matmul"),
    _product("linear", "addmm", option="linear"),
    # Of inference: a backward reads a random state in a dtype that no fusion has.
    _product("sdpa", "_scaled_dot_product_flash_attention", option="sdpa"),
)
"""Matrix products and attention."""
