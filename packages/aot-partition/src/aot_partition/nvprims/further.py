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


_POINTWISE = "addcdiv addcmul angle floor_divide fmax fmin hypot nan_to_num sgn"
_POINTWISE_PRIMS = "add sub mul sqrt ceil floor round trunc hypot"
_SPECIAL = (
    "digamma i0 polygamma special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 "
    "special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_modified_bessel_i0 "
    "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0"
)
_SPECIAL_PRIMS = (
    "bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 erfcx ndtri spherical_bessel_j0"
)
_REPLACING = "slice_scatter select_scatter diagonal_scatter"
_RESAMPLING = (
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d im2col"
)
_EMPTY = "empty_like new_empty empty_strided new_empty_strided empty_permuted"

ENTRIES = (
    # Elements of one place.
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in _POINTWISE.split()),
    *(Nvprim(name, overloads(name, "Tensor", "Scalar"), Kind.POINTWISE) for name in ("copysign", "lerp")),
    *(Nvprim(name, overloads(name, "Scalar", "Tensor"), Kind.POINTWISE) for name in ("fill", "masked_fill")),
    *(
        Nvprim(name, overloads(name, "default", "Tensor"), Kind.POINTWISE)
        for name in ("clamp_min", "clamp_max")
    ),
    *(
        Nvprim(f"bitwise_{name}_number", overloads(f"bitwise_{name}", "Scalar_Tensor"), Kind.POINTWISE)
        for name in ("and", "or", "xor")
    ),
    Nvprim("where_number", overloads("where", "ScalarSelf", "ScalarOther", "Scalar"), Kind.POINTWISE),
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in ("contiguous", "copy")),
    *(_prim(name, Kind.POINTWISE) for name in _POINTWISE_PRIMS.split()),
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
    *(
        Nvprim(name, overloads(name, "default", "dim"), Kind.REDUCTION, recomputable=False)
        for name in ("median", "nanmedian")
    ),
    *(
        Nvprim(name, overloads(name), Kind.REDUCTION, recomputable=False)
        for name in ("kthvalue", "cummax", "cummin")
    ),
    Nvprim("round_decimals", overloads("round", "decimals"), Kind.POINTWISE),
    # Other places.
    *(_prim(name, Kind.MOVE) for name in ("transpose", "view_of", "broadcast_in_dim", "squeeze")),
    *(
        Nvprim(name, overloads(name), Kind.POINTWISE)
        for name in ("view_copy", "expand_copy", "permute_copy", "roll")
    ),
    Nvprim("unbind_copy", overloads("unbind_copy", "int"), Kind.POINTWISE),
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
    Nvprim(
        "index_fill",
        overloads("index_fill", "int_Scalar", "int_Tensor"),
        Kind.INDEX,
        recomputable=False,
    ),
    Nvprim("index_put", overloads("index_put"), Kind.INDEX, recomputable=False),
    Nvprim("as_strided_copy", overloads("as_strided_copy"), Kind.INDEX),
    Nvprim("as_strided_scatter", overloads("as_strided_scatter"), Kind.INDEX, recomputable=False),
    *(
        Nvprim(name, overloads(name), Kind.INDEX, recomputable=False)
        for name in ("max_unpool2d", "max_unpool3d")
    ),
    *(Nvprim(name, overloads(name), Kind.INDEX) for name in _RESAMPLING.split()),
    *(Nvprim(name, overloads(name), Kind.INDEX) for name in ("unfold", "unfold_copy")),
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in _REPLACING.split()),
    # Special functions, by series.
    *(Nvprim(name, overloads(name), Kind.POINTWISE) for name in _SPECIAL.split()),
    *(_prim(name, Kind.POINTWISE) for name in _SPECIAL_PRIMS.split()),
    # Random numbers: what is drawn is kept, not drawn again.
    *(
        Nvprim(name, overloads(name, *suffixes), Kind.RANDOM, recomputable=False)
        for name, *suffixes in (("bernoulli", "default", "p"), ("uniform",), ("normal_functional",))
    ),
    # Numbers.
    Nvprim("arange", overloads("arange", "default", "start"), Kind.CREATE, rule=dense_result),
    *(Nvprim(name, overloads(name), Kind.CREATE, rule=dense_result) for name in _EMPTY.split()),
    Nvprim("empty", overloads("empty", "memory_format"), Kind.CREATE, rule=dense_result),
    Nvprim("prims_empty_strided", (prims.empty_strided.default,), Kind.CREATE),
)
"""Composed operators."""
