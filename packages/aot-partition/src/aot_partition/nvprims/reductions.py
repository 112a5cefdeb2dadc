"""Entries that compute one element from many: reductions, scans and sorts."""

from __future__ import annotations

from torch import fx

from aot_partition.nvprims.common_rules import all_of, floating
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads

__all__ = ["ENTRIES"]


def _correction(node: fx.Node) -> str | None:
    """nvFuser's correction is an integer."""
    correction = call_arguments(node).get("correction")
    if correction is None or (isinstance(correction, (int, float)) and correction == int(correction)):
        return None
    return f"correction {correction}"


ENTRIES = (
    Nvprim("sum", overloads("sum", "default", "dim_IntList"), Kind.REDUCTION, recomputable=False),
    Nvprim("mean", overloads("mean", "default", "dim"), Kind.REDUCTION, recomputable=False),
    Nvprim("prod", overloads("prod", "default", "dim_int"), Kind.REDUCTION, recomputable=False),
    Nvprim("amax", overloads("amax"), Kind.REDUCTION, recomputable=False),
    Nvprim("amin", overloads("amin"), Kind.REDUCTION, recomputable=False),
    Nvprim(
        "var",
        overloads("var", "correction"),
        Kind.REDUCTION,
        recomputable=False,
        rule=all_of(floating, _correction),
    ),
    Nvprim(
        "var_mean",
        overloads("var_mean", "correction"),
        Kind.REDUCTION,
        recomputable=False,
        rule=all_of(floating, _correction),
        pays_alone=True,
    ),
    *(Nvprim(name, overloads(name), Kind.REDUCTION, recomputable=False) for name in ("cumsum", "cumprod")),
    Nvprim("topk", overloads("topk"), Kind.REDUCTION, recomputable=False),
    Nvprim(
        "argsort",
        overloads("argsort", "default", "stable"),
        Kind.REDUCTION,
        recomputable=False,
    ),
)
"""Reductions, scans and sorts."""
