"""Metadata of a function whose overlapping inputs have been merged into one base each.

Say ``a`` and ``b`` are overlapping views of one storage, and ``f`` writes to ``a``. In a functional graph the
write would be to a new value that ``b`` knows nothing of. So the graph is given the storage as one tensor, the
*synthetic base*, and takes ``a`` and ``b`` from it as views.

Before::

    f(x, a, 7, b)        outer inputs 0, 1, 2, 3

After::

    f(base, 7, x)        inner inputs 0, 1, 2: bases, then what is no tensor, then the other tensors

    where each outer input is found:   [2, (0, a), 1, (0, b)]

What moves:

* The base is an input whose data is written, whatever was written through its views. Its sizes and strides
  never change: a view whose own sizes or strides change (``a.t_()``) is handed back as an additional output,
  an alias of the base, from which the caller's tensor is given its new shape.
* The tangents of written views give way to one tangent of the base.
* An output that was a view of ``a``, or ``a`` itself, is a view of the base. The steps by which it was made
  from ``a`` would lead elsewhere when repeated on the base, so they are dropped; AOTAutograd then recreates
  it by size, strides and offset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from aot_core import _compat
from aot_core.analysis.metadata import (
    Tangent,
    has_tangent,
    names_an_input,
    refuse_subclasses,
    rewrite,
    tangents_of_inputs,
)
from aot_core.errors import InconsistentMetadataError, UnsupportedAliasingError

__all__ = ["create_synthetic_base_metadata"]

Place = int | tuple[int, torch.Tensor]
"""Where an outer input is found: at an inner number, or as a view like this one of the base at that number."""


def create_synthetic_base_metadata(
    m: Any,
    synthetic_base_info: list[Place],
    outer_args: list[Any],
    inner_args: list[Any],
    inner_args_desc: list[Any],
) -> tuple[Any, list[int]]:
    """Return the metadata of the function after merging, and which inputs have to be given a new shape.

    Where torch's own (2.10 to 2.14) is wrong: it counts the tangents to replace on the merged inputs instead of
    the original ones, so that two written views that require grad crash; it renumbers the bases of views of
    intermediate values as if they were inputs; it keeps the steps that led from a merged input to its view
    and repeats them on the base, which gives wrong values (pytorch/pytorch#198095); it takes a base to be
    written with gradients enabled if a view is not written at all; it loses effect tokens, a changed grad mode
    and every other field that it does not name.

    Args:
        m: ``ViewAndMutationMeta`` of the function before merging. Not changed.
        synthetic_base_info: For each outer input where it is found among the inner ones, see `Place`.
        outer_args: The inputs before merging (fake tensors).
        inner_args: The inputs after it: bases first, in the order of their first views.
        inner_args_desc: AOTAutograd's description of each inner input.

    Returns:
        A new ``ViewAndMutationMeta``, and the numbers of those outer inputs that were merged and change their
        own sizes or strides, in the order of the outputs added for them at the end.

    Raises:
        InconsistentMetadataError: the arguments differ in length, or an inner input is none of the outer ones.
        UnsupportedAliasingError: a merged input is a tensor subclass, or views of one base differ in dtype, in
            the base that autograd knows, or in being leaves.
    """
    merged_views = _views_of_each(m, synthetic_base_info, outer_args, inner_args, inner_args_desc)
    if any(_is_merged(place) for place in synthetic_base_info):
        refuse_subclasses(m, "Inputs that share memory")

    input_info = [
        _merge([m.input_info[view] for view in views], inner)
        if _is_merged(synthetic_base_info[views[0]])
        else m.input_info[views[0]]
        for views, inner in zip(merged_views, inner_args, strict=True)
    ]
    reshaped = [
        number
        for number, (info, place) in enumerate(zip(m.input_info, synthetic_base_info, strict=True))
        if info.mutates_metadata and _is_merged(place)
    ]
    output_info = [_after_merging(output, synthetic_base_info) for output in m.output_info]
    output_info += [
        _reshaped_view(outer_args[number], m.input_info[number], _inner_number(synthetic_base_info[number]))
        for number in reshaped
    ]
    bases = {_inner_number(place) for place in synthetic_base_info if _is_merged(place)}
    output_info = _with_siblings_as_aliases(output_info, bases)

    layouts = _compat.tensor_layouts(inner_args)
    rewritten = rewrite(
        m,
        input_info=input_info,
        output_info=output_info,
        tangents=_tangents(m, merged_views, input_info, inner_args, inner_args_desc, synthetic_base_info),
        new_number=[None if _is_merged(place) else _inner_number(place) for place in synthetic_base_info],
        input_layouts=layouts,
        updated_layouts=[
            layout
            for layout, info in zip(layouts, input_info, strict=True)
            if info.mutation_type.name == "MUTATED_OUT_GRAPH"
        ],
        added_output_layouts=_compat.tensor_layouts([outer_args[number] for number in reshaped]),
    )
    return rewritten, reshaped


def _is_merged(place: Place) -> bool:
    return isinstance(place, tuple)


def _inner_number(place: Place) -> int:
    return place[0] if isinstance(place, tuple) else place


def _views_of_each(
    m: Any,
    places: Sequence[Place],
    outer_args: Sequence[Any],
    inner_args: Sequence[Any],
    descs: Sequence[Any],
) -> list[list[int]]:
    """Return for each inner input the numbers of the outer inputs that are found there."""
    if not len(m.input_info) == len(places) == len(outer_args) or len(inner_args) != len(descs):
        raise InconsistentMetadataError(
            f"Expected as many places and outer inputs as the metadata has inputs ({len(m.input_info)}), got "
            f"{len(places)} and {len(outer_args)}; expected as many descriptions as inner inputs "
            f"({len(inner_args)}), got {len(descs)}."
        )
    views: list[list[int]] = [[] for _ in inner_args]
    for number, place in enumerate(places):
        views[_inner_number(place)].append(number)
    for number, outer_numbers in enumerate(views):
        shared = [_is_merged(places[outer]) for outer in outer_numbers]
        if not shared or (len(shared) > 1 and not all(shared)):
            raise InconsistentMetadataError(
                f"Inner input {number} stands for outer inputs {outer_numbers}. Expected one outer input, or any "
                "number of views of one base."
            )
        if shared[0]:
            _refuse_unsupported([(outer, outer_args[outer]) for outer in outer_numbers])
    return views


def _refuse_unsupported(views: Sequence[tuple[int, Any]]) -> None:
    for number, view in views:
        if _compat.is_wrapper_subclass(view):
            raise UnsupportedAliasingError(
                f"Input {number} shares written memory with another input and is a {type(view).__name__}. Expected "
                "plain tensors: a base can't be made for a tensor subclass. Clone it before the call."
            )
    (first, one), *rest = views
    base = _base_for_autograd([view for _, view in views])
    for number, view in rest:
        if view.dtype != one.dtype:
            raise UnsupportedAliasingError(
                f"Inputs {first} ({one.dtype}) and {number} ({view.dtype}) share written memory. Expected one "
                "dtype: the base of both would have to be reinterpreted. Clone one of them before the call."
            )
    if base is None:
        return
    for number, view in views:
        if view is not base and _compat.autograd_base(view) is not base:
            raise UnsupportedAliasingError(
                f"Input {number} shares written memory with others that autograd knows as views of another "
                "tensor. Expected views of one tensor: a gradient can't pass between unrelated bases. Clone it, "
                "or take all of them as views of the same tensor."
            )


def _base_for_autograd(views: Sequence[Any]) -> Any:
    return next((base for base in map(_compat.autograd_base, views) if base is not None), None)


def _merge(views: Sequence[Any], base: Any) -> Any:
    """Return the ``InputAliasInfo`` of a base from those of its views.

    Exists only where data is written. A flag that allows something to be left out (bookkeeping of autograd) must
    hold for every write; a view that is not written has no say in it.
    """
    written = [view for view in views if view.mutates_data] or list(views)
    requires_grad = any(view.requires_grad for view in views)
    changes: dict[str, Any] = {
        "mutates_data": True,
        "mutates_metadata": False,
        "mutates_storage_metadata": False,
        "mutations_hidden_from_autograd": all(view.mutations_hidden_from_autograd for view in written),
        "mutations_under_no_grad_or_inference_mode": all(
            view.mutations_under_no_grad_or_inference_mode for view in written
        ),
        "mutation_inductor_storage_resize": all(view.mutation_inductor_storage_resize for view in views),
        "is_leaf": _is_leaf(views, base),
        "requires_grad": requires_grad,
    }
    names = {field.name for field in dataclasses.fields(views[0])}
    if "mutation_is_shallow_copy_data" in names:
        # ``x.data = y`` swaps the storage of one view; the base keeps its own.
        changes["mutation_is_shallow_copy_data"] = False
    return dataclasses.replace(views[0], **changes)


def _is_leaf(views: Sequence[Any], base: Any) -> bool:
    if isinstance(base, torch.Tensor) and base.requires_grad:
        # The views of a parameter are no leaves, while the parameter is.
        return bool(base.is_leaf)
    leaves = {view.is_leaf for view in views}
    if len(leaves) > 1:
        raise UnsupportedAliasingError(
            "Some of the inputs that share written memory are leaves of autograd's graph and others are not, and "
            "none is a view of a tensor that requires grad. Expected all or none. Detach or clone one of them."
        )
    return bool(leaves.pop())


def _after_merging(output: Any, places: Sequence[Place]) -> Any:
    if not names_an_input(output):
        return output
    place = places[output.base_idx]
    changes: dict[str, Any] = {"base_idx": _inner_number(place)}
    if _is_merged(place):
        if output.output_type.name == "is_input":
            changes["output_type"] = type(output.output_type).alias_of_input
        changes["view_meta_sequence"] = None
    return dataclasses.replace(output, **changes)


def _with_siblings_as_aliases(output_info: Sequence[Any], bases: set[int]) -> list[Any]:
    """Make aliases of the parts of a base that were let pass as fresh outputs.

    If all outputs that view an input come from one operation with several results (``a.unbind()``), autograd
    forbids writing to them, and so they need not be known as views. Merging may bring another view of the same
    base among the outputs, and then they must.
    """
    viewed = {
        output.base_idx
        for output in output_info
        if output.output_type.name == "alias_of_input" and output.base_idx in bases
    }
    return [
        dataclasses.replace(output, output_type=type(output.output_type).alias_of_input)
        if output.output_type.name == "non_alias" and output.base_idx in viewed
        else output
        for output in output_info
    ]


def _reshaped_view(view: Any, info: Any, base_number: int) -> Any:
    """Return the ``OutputAliasInfo`` of a merged input that is handed back to be given its new shape."""
    return _compat.output_info(
        output_type=_compat.output_type("alias_of_input"),
        raw_type=_compat.functional_tensor_type(),
        base_idx=base_number,
        dynamic_dims={dim for dim, size in enumerate(view.shape) if not _compat.is_concrete(size)},
        requires_grad=info.requires_grad,
        requires_grad_for_backward=info.requires_grad,
    )


def _tangents(
    m: Any,
    merged_views: Sequence[Sequence[int]],
    input_info: Sequence[Any],
    inner_args: Sequence[Any],
    inner_args_desc: Sequence[Any],
    places: Sequence[Place],
) -> dict[int, Tangent]:
    before = tangents_of_inputs(m)
    after = {}
    for number, (views, info) in enumerate(zip(merged_views, input_info, strict=True)):
        if not has_tangent(info):
            continue
        if _is_merged(places[views[0]]):
            made = _compat.tangent_of_updated_input(inner_args[number], inner_args_desc[number])
            after[number] = Tangent(*made)
        else:
            after[number] = before[views[0]]
    return after
