"""The table of what a CUDA graph can't hold: a code, a reason, a remedy, and which calls it is about.

A row is about some operators, about all calls with some property, or about what is not an operator. It looks at names,
tags, dtypes, sizes and devices, never at a tensor's values.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aot_cudagraphs import _compat

__all__ = ["RULES", "Call", "Rule"]


@dataclasses.dataclass(frozen=True)
class Call:
    """What is known of one call of an operator.

    Args:
        op: The operator.
        arguments: Its arguments by name.
        is_host: Tells which tensors lie in host memory.
    """

    op: Any
    arguments: Mapping[str, Any]
    is_host: Callable[[torch.Tensor], bool]

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """What a rule may call the operator: ``{"add", "add.Tensor"}``; nothing for one that is not ATen's."""
        schema = self.op._schema
        namespace, _, name = schema.name.partition("::")
        return frozenset({name, f"{name}.{schema.overload_name}"} if namespace == "aten" else ())

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors among the arguments, those in lists included."""
        leaves = _compat.pytree.tree_leaves(list(self.arguments.values()))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or what it is by default."""
        return self.arguments.get(name, default)


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of the table.

    Args:
        code: A stable kebab-case identifier.
        reason: What such an operation does, as half a sentence.
        remedy: What to do about it, as a sentence.
        ops: ATen operators that it is about, with or without the overload; empty: any operator.
        when: Which of their calls; None: all. A rule with neither is about what is not an operator, and is
            applied by name, see `named_refusal`.
    """

    code: str
    reason: str
    remedy: str
    ops: frozenset[str] = frozenset()
    when: Callable[[Call], bool] | None = None

    def refuses(self, call: Call) -> bool:
        """Tell whether the call is one that this rule is about."""
        if self.ops:
            return not self.ops.isdisjoint(call.names) and (self.when is None or self.when(call))
        return self.when is not None and self.when(call)


# --- conditions --------------------------------------------------------------------------------------------


def _tagged(*tags: str) -> Callable[[Call], bool]:
    return lambda call: any(_compat.has_tag(call.op, tag) for tag in tags)


def _shape_depends_on_data(call: Call) -> bool:
    # These have the tag for some of their calls, and rules of their own that tell which.
    name = call.op._schema.name.removeprefix("aten::")
    return name not in _SHAPE_RULED_APART and _compat.has_tag(call.op, "dynamic_output_shape")


def _indexed_by_mask(call: Call) -> bool:
    masks = (torch.bool, torch.uint8)
    return any(isinstance(index, torch.Tensor) and index.dtype in masks for index in call.get("indices", ()))


def _from_pageable_memory(call: Call) -> bool:
    return any(tensor.dim() > 0 and call.is_host(tensor) for tensor in call.tensors)


def _to_host(call: Call) -> bool:
    if call.op._schema.name == "aten::copy_":
        return call.is_host(call.get("self")) and not call.is_host(call.get("src"))
    device = call.get("device")
    to_cpu = device is not None and torch.device(device).type == "cpu"
    return to_cpu and any(tensor.device.type != "cpu" for tensor in call.tensors)


def _is_sparse(call: Call) -> bool:
    name = call.op._schema.name.removeprefix("aten::")
    asked_for = call.get("layout") not in (None, torch.strided)
    makes_it = name.startswith(("sparse_", "_sparse_", "to_sparse", "_to_sparse"))
    return asked_for or makes_it or any(tensor.layout is not torch.strided for tensor in call.tensors)


def _is_large_set(call: Call) -> bool:
    # Below this size membership is found by comparing all with all; above, by sorting and _unique.
    elements, tests = call.get("elements"), call.get("test_elements")
    if not (isinstance(elements, torch.Tensor) and isinstance(tests, torch.Tensor)):
        return False
    counts = _numel(elements), _numel(tests)
    return None in counts or (counts[0] > 0 and counts[1] >= int(10 * counts[0] ** 0.145))  # type: ignore[operator]


def _is_long_slice(call: Call) -> bool:
    tensor = call.get("self")
    size = tensor.shape[call.get("dim", -1)] if tensor.dim() else 1
    return not isinstance(size, int) or size > 2048


def _numel(tensor: torch.Tensor) -> int | None:
    count = tensor.numel()
    return count if type(count) is int else None


_SHAPE_RULED_APART = {
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index",
    "_unsafe_index_put",
    "_unsafe_masked_index",
    "repeat_interleave",
    "one_hot",
}

# --- the table ---------------------------------------------------------------------------------------------

_OUTSIDE = "Move it out of the captured function, or let the backend leave it between two graphs."

RULES = (
    Rule(
        "host-read",
        "gives a value of the device to the host, which has to wait for it",
        "Keep the value in a tensor (torch.where instead of if), or move the read out of the captured function.",
        frozenset({"item", "_local_scalar_dense", "equal", "is_nonzero", "allclose"}),
    ),
    Rule(
        "host-read",
        "returns what depends on values of the device to the host, which has to wait for it",
        "Keep the value in a tensor, or move the read out of the captured function.",
        when=_tagged("data_dependent_output"),
    ),
    Rule(
        "data-dependent-shape",
        "returns as many elements as the values of its input say, and the host has to know how many",
        "Use a form of fixed size: a mask with torch.where, nonzero_static, a bound on the size.",
        frozenset(
            {
                "nonzero",
                "nonzero_numpy",
                "argwhere",
                "masked_select",
                "masked_scatter_backward",
                "unique_dim",
                "_unique",
                "_unique2",
                "unique_consecutive",
                "unique_dim_consecutive",
                "bincount",
            }
        ),
    ),
    Rule(
        "data-dependent-shape",
        "is tagged as returning as many elements as the values of its input say",
        "Use a form of fixed size.",
        when=_shape_depends_on_data,
    ),
    Rule(
        "output-size-unknown",
        "sums its repeats on the device to learn the size of its output",
        "Pass output_size=.",
        frozenset({"repeat_interleave.Tensor", "repeat_interleave.self_Tensor"}),
        lambda call: call.get("output_size") is None,
    ),
    Rule(
        "mask-index",
        "counts the true elements of a mask on the device to learn the size of the index",
        "Use torch.where(mask, ...) or masked_fill with a number, which have a fixed size.",
        frozenset(
            {
                "index",
                "index_put",
                "index_put_",
                "_index_put_impl_",
                "_unsafe_index",
                "_unsafe_index_put",
            }
        ),
        _indexed_by_mask,
    ),
    Rule(
        "value-read-on-host",
        "takes a number from a tensor on the device and passes it on as an argument of its kernel",
        "Pass the number itself, or use torch.where.",
        frozenset(
            {
                "masked_fill.Tensor",
                "masked_fill_.Tensor",
                "index_fill.int_Tensor",
                "index_fill_.int_Tensor",
                "linspace.Tensor_Tensor",
                "linspace.Tensor_Scalar",
                "linspace.Scalar_Tensor",
                "logspace.Tensor_Tensor",
                "logspace.Tensor_Scalar",
                "logspace.Scalar_Tensor",
            }
        ),
        # A host scalar is read without waiting; what it was when captured is what it stays.
        lambda call: any(tensor.dim() == 0 and not call.is_host(tensor) for tensor in call.tensors),
    ),
    Rule(
        "values-checked-on-host",
        "checks the values of an argument on the host before it starts",
        _OUTSIDE,
        frozenset(
            {
                "normal.Tensor_Tensor",
                "normal.float_Tensor",
                "normal_functional.Tensor_Tensor",
                "_linalg_check_errors",
                "cholesky",
                "cholesky_inverse",
                "embedding_renorm_",
                "embedding_renorm",
            }
        ),
    ),
    Rule(
        "values-checked-on-host",
        "checks on the host whether the decomposition has failed",
        "Pass check_errors=False, and look at info after the captured function.",
        frozenset(
            {
                "linalg_cholesky_ex",
                "linalg_inv_ex",
                "linalg_solve_ex",
                "_linalg_solve_ex",
                "linalg_lu_factor_ex",
                "linalg_ldl_factor_ex",
            }
        ),
        lambda call: bool(call.get("check_errors", False)),
    ),
    Rule(
        "values-checked-on-host",
        "checks on the host that its sorter is in range",
        "Sort the sequence first and leave sorter= away.",
        frozenset({"searchsorted"}),
        lambda call: call.get("sorter") is not None,
    ),
    Rule(
        "values-checked-on-host",
        "checks on the host that the probabilities are finite, not negative and not all zero",
        "Draw with (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1).",
        frozenset({"multinomial"}),
        lambda call: not call.get("replacement", False) or call.get("num_samples") == 1,
    ),
    Rule(
        "values-checked-on-host",
        "checks on the host that lengths add up",
        "Pass unsafe=True.",
        frozenset({"segment_reduce"}),
        lambda call: not call.get("unsafe", False),
    ),
    Rule(
        "range-read-on-host",
        "finds the range of its bins on the device and reads it on the host",
        "Pass min= and max=.",
        frozenset({"histc"}),
        lambda call: call.get("min", 0) == call.get("max", 0),
    ),
    Rule(
        "uses-unique",
        "looks up this many elements by way of _unique, whose result's size the host has to know",
        "Compare with broadcasting: (elements[..., None] == test_elements).any(-1).",
        frozenset({"isin.Tensor_Tensor"}),
        _is_large_set,
    ),
    Rule(
        "host-algorithm",
        "runs an algorithm for slices of this length that steps from kernel to kernel by what the host reads",
        _OUTSIDE,
        frozenset({"mode"}),
        _is_long_slice,
    ),
    Rule(
        "host-algorithm",
        "computes on the host, or reads on the host whether it has converged",
        _OUTSIDE,
        frozenset(
            {
                "linalg_eig",
                "linalg_eigvals",
                "_linalg_eigvals",
                "_linalg_eigh",
                "_linalg_svd",
                "linalg_lstsq",
                "linalg_pinv.atol_rtol_tensor",
                "linalg_matrix_exp",
                "_ctc_loss",
                "_ctc_loss_backward",
                "_pack_padded_sequence",
            }
        ),
    ),
    Rule(
        "host-only",
        "has no kernel on a CUDA device",
        _OUTSIDE,
        frozenset(
            {
                "histogram",
                "histogramdd",
                "_histogramdd_bin_edges",
                "_histogramdd_from_bin_cts",
                "_histogramdd_from_bin_tensors",
            }
        ),
    ),
    Rule(
        "pageable-copy",
        "makes a tensor of values on the host and copies them to the device",
        "Make the tensor once, outside, or with torch.full, torch.arange and the like.",
        frozenset({"lift_fresh"}),
    ),
    Rule(
        "pageable-copy",
        "reads a tensor in host memory, which is copied to the device while the host waits",
        "Keep the tensor on the device, or copy it there before the captured function.",
        when=_from_pageable_memory,
    ),
    Rule(
        "copy-to-host",
        "copies from the device to host memory, for which the host has to wait",
        "Copy after the captured function has run.",
        frozenset({"copy_", "_to_copy"}),
        _to_host,
    ),
    Rule(
        "sparse-layout",
        "works on a tensor whose number of stored elements the host has to know",
        "Use a strided tensor.",
        when=_is_sparse,
    ),
    Rule(
        "tagged-unsafe",
        "is tagged cudagraph_unsafe by who wrote it",
        _OUTSIDE,
        when=_tagged("cudagraph_unsafe"),
    ),
    # What is not an operator.
    Rule(
        "host-copy",
        "hands memory of the device to Python",
        "Do it after the captured function has run.",
    ),
    Rule(
        "host-random-state",
        "reads or sets the state of a random number generator on the host, where a replay can't",
        "Seed before, and save states outside the captured function.",
    ),
    Rule(
        "unregistered-generator",
        "draws from a generator that the recording was not told of, so that replays would repeat its numbers",
        "Pass the generator in generators=.",
    ),
    Rule(
        "concurrent-capture",
        "is asked for while another capture is under way in this process",
        "Let one capture end before the next begins.",
    ),
    Rule(
        "nested-replay",
        "launches a graph while another is being captured",
        "Capture what the inner graph does instead.",
    ),
    Rule(
        "host-control-flow",
        "chooses on the host what to run by a value of the device",
        _OUTSIDE,
    ),
    Rule(
        "host-work",
        "computes on the host, which happens once, when captured, and not at replay",
        "Move the tensor to the device, or move the computation out of the captured function.",
    ),
    Rule(
        "unknown-call",
        "is not an operator, so that nothing says what it does",
        "Trace the function to ATen first, with make_fx or AOTAutograd.",
    ),
)
"""The table, in the order in which it is asked."""
