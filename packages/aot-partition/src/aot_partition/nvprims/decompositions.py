"""Which operators AOTAutograd takes apart while it traces, so that claimed ones are left.

This is where a step becomes nvprims: the one trace that is made anyway comes out in core ATen operators and the
pieces of norms, softmaxes and activations. No graph is traced a second time, so descriptions of outputs, tags and
source lines are those of the model. ::

    softmax(x)                 before
    amax, sub, exp, sum, div   after: each claimed

An operator is taken apart by claim: not if the op set has it as it is, not if its pieces could not be claimed for
their dtype or layout, and not if they would be more for ATen than the one kernel was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch

from aot_partition import _compat
from aot_partition.nvprims.claims import skipped_overloads
from aot_partition.nvprims.common_rules import DTYPES
from aot_partition.nvprims.own_decompositions import OWN
from aot_partition.nvprims.table import nvprim_of

__all__ = ["nvprims_decompositions"]

Decomposition = Callable[..., Any]

CHOSEN = (
    "_batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional _log_softmax "
    "_native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _softmax "
    "batch_norm_backward dist elu float_power gelu hardtanh leaky_relu linalg_vector_norm logaddexp "
    "native_batch_norm native_group_norm native_layer_norm repeat"
)
"""Core ATen operators that are taken apart nevertheless: each into operators of the op set."""

KEPT = (
    "_reshape_alias _unsafe_index_put _unsafe_masked_index_put_accumulate _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d affine_grid_generator cdist col2im embedding_dense_backward "
    "im2col index_add max_unpool2d max_unpool3d multilabel_margin_loss_forward reflection_pad1d "
    "reflection_pad1d_backward reflection_pad2d "
    "reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward replication_pad1d replication_pad2d "
    "replication_pad3d resize_as unfold_backward upsample_bicubic2d upsample_bilinear2d upsample_linear1d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d"
)
"""Operators that core ATen takes apart into much indexing, or into additions at an index: one kernel is better."""

OF_FLOATS = "linspace logspace"
"""Operators whose pieces are right in floating point, and round otherwise than the kernel where integers are made."""


def nvprims_decompositions(
    *, skip_ops: Collection[Any] = (), device_types: Collection[str] | None = None
) -> dict[Any, Decomposition]:
    """Return the decompositions with which AOTAutograd traces graphs of nvprims.

    Args:
        skip_ops: Operators that are left as the model calls them; see `aot_partition.nvprims.claim`.
        device_types: Only calls on tensors of these are taken apart; None for all.

    Returns:
        Operator → function, which declines (``NotImplemented``) calls whose pieces could not be claimed.

    Raises:
        UnknownOperatorError: ``skip_ops`` names something that is no operator.
    """
    skipped = skipped_overloads(skip_ops)
    devices = None if device_types is None else frozenset(device_types)
    return {op: function for op, function in _table(devices).items() if op not in skipped}


@functools.cache
def _table(device_types: frozenset[str] | None) -> dict[Any, Decomposition]:
    table = _compat.decompositions("core")
    every = _compat.decompositions("all")
    aten = torch.ops.aten
    for overload in _overloads(aten, CHOSEN):
        if overload in every:
            table[overload] = every[overload]
    for overload in _overloads(aten, KEPT):
        table.pop(overload, None)
    for overload in _overloads(aten, OF_FLOATS):
        if overload in table:
            table[overload] = _unless_of_integers(table[overload])
    table = {
        op: function
        for op, function in table.items()
        if nvprim_of(op) is None and not _compat.draws_numbers(op)
    }
    # Some of ours are for calls that the op set does not take although it has the operator.
    table.update(OWN)
    return {op: _where_claimable(function, device_types) for op, function in table.items()}


def _overloads(namespace: Any, names: str) -> list[Any]:
    found = []
    for name in names.split():
        packet = getattr(namespace, name, None)
        if packet is not None:
            found += [getattr(packet, overload) for overload in packet.overloads()]
    return found


def _unless_of_integers(function: Decomposition) -> Decomposition:
    @functools.wraps(function)
    def decompose(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            return NotImplemented
        return function(*args, dtype=dtype, **kwargs)

    return decompose


def _where_claimable(function: Decomposition, device_types: frozenset[str] | None) -> Decomposition:
    """Return a decomposition that leaves alone what couldn't be claimed afterwards."""

    @functools.wraps(function)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        for leaf in _compat.pytree.arg_tree_leaves(*args, **kwargs):
            if isinstance(leaf, torch.Tensor) and not takes(leaf):
                return NotImplemented
        return function(*args, **kwargs)

    def takes(tensor: torch.Tensor) -> bool:
        if tensor.dtype not in DTYPES or tensor.layout is not torch.strided:
            return False
        return device_types is None or not tensor.dim() or tensor.device.type in device_types

    return decompose
