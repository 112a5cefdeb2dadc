"""Entries that compute each element from the elements at its place."""

from __future__ import annotations

import torch
from torch import fx

from aot_partition.nvprims.common_rules import dense_result, floating
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads

__all__ = ["ENTRIES"]

_BINARY = ("Tensor", "Scalar")

_UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac isfinite "
    "isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not neg reciprocal relu rsqrt sigmoid sign "
    "signbit silu sin sinh sqrt tan tanh trunc"
)

_COMPARISONS = "eq ge gt le lt ne"


def _weighs_by_result(node: fx.Node) -> str | None:
    """Refuse an alpha that is a symbolic number: scalars of a fusion are constants."""
    alpha = call_arguments(node).get("alpha", 1)
    return None if isinstance(alpha, (int, float)) else "a symbolic alpha"


ENTRIES = (
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in _UNARY.split()),
    Nvprim("round", overloads("round"), Kind.POINTWISE),
    # Two operands.
    *(
        Nvprim(name, overloads(name, *_BINARY), Kind.POINTWISE, rule=_weighs_by_result)
        for name in ("add", "sub")
    ),
    Nvprim("rsub", overloads("rsub", *_BINARY), Kind.POINTWISE, rule=_weighs_by_result),
    Nvprim("mul", overloads("mul", *_BINARY), Kind.POINTWISE),
    Nvprim("div", overloads("div", *_BINARY), Kind.POINTWISE),
    Nvprim("div_rounded", overloads("div", "Tensor_mode", "Scalar_mode"), Kind.POINTWISE),
    Nvprim("pow", overloads("pow", "Tensor_Tensor", "Tensor_Scalar", "Scalar"), Kind.POINTWISE),
    Nvprim("remainder", overloads("remainder", *_BINARY), Kind.POINTWISE),
    Nvprim("fmod", overloads("fmod", *_BINARY), Kind.POINTWISE),
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in ("atan2", "maximum", "minimum", "gcd")),
    Nvprim("nextafter", overloads("nextafter"), Kind.POINTWISE, rule=floating),
    *(Nvprim(name, overloads(name, *_BINARY), Kind.POINTWISE) for name in _COMPARISONS.split()),
    *(
        Nvprim(f"bitwise_{name}", overloads(f"bitwise_{name}", *_BINARY), Kind.POINTWISE)
        for name in ("and", "or", "xor")
    ),
    *(
        Nvprim(
            f"bitwise_{name}_shift",
            overloads(f"bitwise_{name}_shift", "Tensor", "Tensor_Scalar"),
            Kind.POINTWISE,
        )
        for name in ("left", "right")
    ),
    *(
        Nvprim(f"logical_{name}", overloads(f"logical_{name}"), Kind.POINTWISE)
        for name in ("and", "or", "xor")
    ),
    # Three operands.
    Nvprim("where", overloads("where", "self"), Kind.POINTWISE),
    Nvprim("clamp", overloads("clamp", "default", "Tensor"), Kind.POINTWISE),
    # Copies and casts.
    Nvprim(
        "convert_element_type",
        (*overloads("_to_copy"), torch.ops.prims.convert_element_type.default),
        Kind.POINTWISE,
        rule=dense_result,
    ),
    Nvprim("clone", (*overloads("clone"), *overloads("lift_fresh_copy")), Kind.POINTWISE),
)
"""Functions of one, two and three operands, copies and casts."""
