"""Rewriting AOTAutograd's record of a function whose list of inputs changes.

The record (torch's ``ViewAndMutationMeta``) is a dataclass that grows and loses fields from release to
release. It holds three kinds of field: lists with one entry per input or output, numbers that point into the
list of inputs, and the rest, which a change of inputs leaves alone. `rewrite` copies the whole record by field
name and replaces the first two kinds, so that a field of the third kind is kept even if nobody here has heard
of it.

The tangents take most care. They are the gradients that come into the backward graph, in this order::

    one per updated input │ one per output that is not an alias │ one per intermediate base

and an input is *updated*, for this purpose, if the graph writes its data, the write is carried out after the
graph rather than in it, and the input requires grad. Other written inputs have no tangent. Both steps of
merging change only the first section; where it ends is counted on the record as it was *before* the change.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from aot_core import _compat
from aot_core.errors import InconsistentMetadataError, UnsupportedAliasingError

__all__ = ["Tangent", "has_tangent", "names_an_input", "refuse_subclasses", "rewrite", "tangents_of_inputs"]


class Tangent(NamedTuple):
    """A fake tensor like the gradient that the backward graph will be given, and what it is the gradient of."""

    value: Any
    description: Any


def has_tangent(info: Any) -> bool:
    """Tell whether an input, by its ``InputAliasInfo``, has a tangent in the backward graph."""
    return bool(info.mutates_data and info.requires_grad and info.mutation_type.name == "MUTATED_OUT_GRAPH")


def names_an_input(output: Any) -> bool:
    """Tell whether the ``base_idx`` of an ``OutputAliasInfo`` is the number of an input.

    For views of intermediate values it is the number of an intermediate base, or of an output.
    """
    return output.base_idx is not None and not output.output_type.name.startswith("alias_of_intermediate")


def _output_has_tangent(output: Any) -> bool:
    # Aliases have none: they are recreated outside the graph, where autograd sees them as views.
    return (
        output.output_type.name in ("non_alias", "unsafe_view_alias", "custom_function_view")
        and issubclass(output.raw_type, torch.Tensor)
        and getattr(output, "requires_grad_for_backward", output.requires_grad)
    )


def tangents_of_inputs(meta: Any) -> dict[int, Tangent]:
    """Return the tangents of updated inputs, by number of the input, in the order in which they are passed.

    Raises:
        InconsistentMetadataError: there are fewer tangents than updated inputs.
    """
    updated = [number for number, info in enumerate(meta.input_info) if has_tangent(info)]
    if len(meta.traced_tangents) < len(updated):
        raise InconsistentMetadataError(
            f"Inputs {updated} are written, require grad and are updated after the graph, so that each has a "
            f"tangent; expected at least {len(updated)} traced tangents, got {len(meta.traced_tangents)}. "
            "Pass the metadata as AOTAutograd collected it."
        )
    tangents = zip(meta.traced_tangents, meta.traced_tangents_descs, strict=True)
    return {number: Tangent(*tangent) for number, tangent in zip(updated, tangents, strict=False)}


def refuse_subclasses(meta: Any, what: str) -> None:
    """Raise if an input or output is a tensor subclass, whose inner tensors merging knows nothing of.

    Raises:
        UnsupportedAliasingError: one is.
    """
    layouts = (*meta.subclass_inp_meta, *meta.subclass_fw_graph_out_meta)
    if any(hasattr(layout, "flat_tensor_start_idx") for layout in layouts):
        raise UnsupportedAliasingError(
            f"{what} are written, and an input or output of the function is a tensor subclass. Expected plain "
            "tensors: the inner tensors of a subclass may share memory in ways of their own. Clone one of the "
            "inputs before the call."
        )


def rewrite(
    meta: Any,
    *,
    input_info: Sequence[Any],
    output_info: Sequence[Any],
    tangents: Mapping[int, Tangent],
    new_number: Sequence[int | None],
    input_layouts: Sequence[Any],
    updated_layouts: Sequence[Any],
    added_output_layouts: Sequence[Any] = (),
) -> Any:
    """Return the record of the same function with another list of inputs.

    Args:
        meta: The record to copy. It is not changed.
        input_info: What happens to each of the new inputs.
        output_info: How each output relates to the new inputs.
        tangents: Of the new inputs, for each that `has_tangent`, by its new number.
        new_number: For each old input its number among the new ones; None if facts known of the old input
            (a fixed address, a pending collective) must not be claimed of the new one.
        input_layouts: How each new input packs tensor subclasses.
        updated_layouts: The same for the new inputs that are updated after the graph, in order.
        added_output_layouts: The same for outputs added after the function's own.
    """
    in_order = [tangents[number] for number, info in enumerate(input_info) if has_tangent(info)]
    in_order += _tangents_after_inputs(meta, output_info)
    traced = [tangent.value for tangent in in_order]

    changes: dict[str, Any] = {
        "input_info": list(input_info),
        "output_info": list(output_info),
        "traced_tangents": traced,
        "traced_tangents_descs": [tangent.description for tangent in in_order],
        # Told from the tangents themselves, so that it can't disagree with them on number, order or format.
        "subclass_tangent_meta": _compat.tensor_layouts(traced, tangents=True),
        "subclass_inp_meta": _numbered(input_layouts),
        "subclass_fw_graph_out_meta": _output_layouts(meta, updated_layouts, added_output_layouts),
        **_renumbered_fields(meta, new_number),
    }
    return dataclasses.replace(meta, **changes)


def _tangents_after_inputs(meta: Any, output_info: Sequence[Any]) -> list[Tangent]:
    """Return the tangents of outputs and intermediate bases, without those of outputs that became aliases."""
    everything = map(Tangent, meta.traced_tangents, meta.traced_tangents_descs)
    after_inputs = list(itertools.islice(everything, len(tangents_of_inputs(meta)), None))
    kept = [
        _output_has_tangent(new)
        for old, new in zip(meta.output_info, output_info, strict=False)
        if _output_has_tangent(old)
    ]
    of_bases = after_inputs[len(kept) :]
    return [*itertools.compress(after_inputs, kept), *of_bases]


def _output_layouts(meta: Any, updated: Sequence[Any], added: Sequence[Any]) -> list[Any]:
    # Outputs of the graph: updated inputs, the function's own outputs, intermediate bases.
    old = meta.subclass_fw_graph_out_meta
    start = meta.num_mutated_inp_runtime_indices
    stop = start + len(meta.output_info)
    return _numbered([*updated, *old[start:stop], *added, *old[stop:]])


def _numbered(layouts: Sequence[Any]) -> list[Any]:
    # The index is that of the first plain tensor in the flat list; only plain tensors get here.
    return [dataclasses.replace(entry, unwrapped_idx=index) for index, entry in enumerate(layouts)]


def _renumbered_fields(meta: Any, new_number: Sequence[int | None]) -> dict[str, Any]:
    """Translate the fields that hold numbers of inputs, as far as this torch has them."""
    changes: dict[str, Any] = {}
    for field in (
        "static_input_indices",
        "act_input_indices",
        "indices_of_inputs_that_requires_grad_with_mutations_in_bw",
    ):
        if getattr(meta, field, None):
            numbers = {new_number[number] for number in getattr(meta, field)}
            changes[field] = sorted(number for number in numbers if number is not None)
    if getattr(meta, "act_input_paths", None):
        paths = ((new_number[number], *rest) for number, *rest in meta.act_input_paths)
        changes["act_input_paths"] = list(dict.fromkeys(path for path in paths if path[0] is not None))
    return changes
