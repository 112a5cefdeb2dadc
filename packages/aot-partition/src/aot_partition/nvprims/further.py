"""Entries that are composed: operators that nvFuser has not, said as several that it has.

Core ATen keeps most of them whole, or takes them apart into indexing that nvFuser lacks. Their rules for nvFuser say
how each is composed; what they refuse beyond dtypes and rank, those rules know (`aot_partition.nvfuser.rules`).
"""

from __future__ import annotations

import torch

from aot_partition.nvprims.common_rules import dense_result
from aot_partition.nvprims.entry import Kind, Nvprim, overloads

__all__ = ["ENTRIES"]

prims = torch.ops.prims



def _prim(name: str, kind: Kind, *, recomputable: bool = True) -> Nvprim:
    return Nvprim(f"prims_{name}", (getattr(prims, name).default,), kind, recomputable)


ENTRIES = (
    # Elements of one place.
    *(
        Nvprim(name, overloads(name), Kind.POINTWISE)
        for name in "addcdiv addcmul floor_divide fmax fmin hypot nan_to_num sgn".split()
    ),
    *(Nvprim(name, overloads(name, "Tensor", "Scalar"), Kind.POINTWISE) for name in ("copysign", "lerp")),
    *(Nvprim(name, overloads(name, "Scalar", "Tensor"), Kind.POINTWISE) for name in ("fill", "masked_fill")),
    *(Nvprim(name, overloads(name, "default", "Tensor"), Kind.POINTWISE) for name in ("clamp_min", "clamp_max")),
    *(
        Nvprim(f"bitwise_{name}_number", overloads(f"bitwise_{name}", "Scalar_Tensor"), Kind.POINTWISE)
        for name in ("and", "or", "xor")
    ),
    Nvprim("where_number", overloads("where", "ScalarSelf", "ScalarOther", "Scalar"), Kind.POINTWISE),
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in ("lift_fresh_copy", "contiguous", "copy")),
    *(_prim(name, Kind.POINTWISE) for name in "add sub mul sqrt ceil floor round trunc hypot".split()),
    # Many made one.
    *(
        Nvprim(name, overloads(name, "default", "dim"), Kind.REDUCTION, recomputable=False)
        for name in ("max", "min")
    ),
    *(Nvprim(name, overloads(name), Kind.REDUCTION, recomputable=False) for name in ("argmax", "argmin")),
    *(
        Nvprim(name, overloads(name, "default", "dim", "dims"), Kind.REDUCTION, recomputable=False)
        for name in ("any", "all")
    ),
    *(_prim(name, Kind.REDUCTION, recomputable=False) for name in ("sum", "amax", "amin", "prod")),
    Nvprim("sort", overloads("sort", "default", "stable"), Kind.REDUCTION, recomputable=False),
    # Other places.
    *(_prim(name, Kind.MOVE) for name in ("transpose", "view_of", "broadcast_in_dim", "squeeze")),
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in ("view_copy", "expand_copy", "roll")),
    Nvprim("select_copy", overloads("select_copy", "int"), Kind.POINTWISE),
    Nvprim("slice_copy", overloads("slice_copy", "Tensor"), Kind.POINTWISE),
    # A diagonal is a view for ATen, and a selection here: not worth a region by itself.
    Nvprim("diagonal", overloads("diagonal"), Kind.MOVE),
    Nvprim("diagonal_copy", overloads("diagonal_copy"), Kind.INDEX),
    Nvprim("as_strided", overloads("as_strided"), Kind.MOVE),
    Nvprim("flip", (*overloads("flip"), prims.rev.default), Kind.INDEX),
    *(
        Nvprim(name, overloads(name, "Tensor"), Kind.INDEX, recomputable=False)
        for name in ("index", "_unsafe_index")
    ),
    Nvprim("take", overloads("take"), Kind.INDEX, recomputable=False),
    Nvprim("index_fill", overloads("index_fill", "int_Scalar", "int_Tensor"), Kind.INDEX, recomputable=False),
    # Numbers.
    Nvprim("arange", overloads("arange", "default", "start"), Kind.CREATE, rule=dense_result),
    *(
        Nvprim(name, overloads(name), Kind.CREATE, rule=dense_result)
        for name in "empty_like new_empty empty_strided new_empty_strided empty_permuted".split()
    ),
    Nvprim("empty", overloads("empty", "memory_format"), Kind.CREATE, rule=dense_result),
    Nvprim("prims_empty_strided", (prims.empty_strided.default,), Kind.CREATE),
)
"""Composed operators."""
