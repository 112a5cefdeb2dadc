"""Metadata of a function from which repeated inputs have been removed.

Before::

    f(x, y, x, z)    keep  [True, True, False, True]
                     map   [0, 1, 0, 2]              where each old input is found among the new ones

After::

    f(x, y, z)       the third argument is passed the first

Both arguments were one tensor when the metadata was collected, so that whatever is known of ``x`` was noted
twice. The second note goes, and with it its tangent, if it had one. Whatever named input 2 now names input 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from aot_core.analysis.metadata import names_an_input, refuse_subclasses, rewrite, tangents_of_inputs
from aot_core.errors import InconsistentMetadataError

__all__ = ["remove_dupe_metadata"]


def remove_dupe_metadata(m: Any, keep_arg_mask: list[bool], add_dupe_map: list[int]) -> Any:
    """Return the metadata as it would be collected from the function without its repeated inputs.

    Where torch's own (2.10 to 2.14) is wrong: it takes every input with written data to have a tangent, though
    only those have one that require grad and are updated after the graph, and so removes tangents of outputs
    instead; it renumbers the bases of views of intermediate values as if they were inputs; it loses the
    memory format of the tangents that it keeps, and every field that it does not name, effect tokens and a
    changed grad mode among them.

    Args:
        m: ``ViewAndMutationMeta`` of the function with all its inputs. Not changed.
        keep_arg_mask: For each input, whether it is the first of its kind.
        add_dupe_map: For each input, the number among the kept ones of the input that it repeats or is.

    Returns:
        A new ``ViewAndMutationMeta``. Kept inputs stay in order; without repeated inputs it equals ``m``.

    Raises:
        InconsistentMetadataError: mask and map differ in length from the inputs or contradict each other.
        UnsupportedAliasingError: an input or output is a tensor subclass.
    """
    _check(m, keep_arg_mask, add_dupe_map)
    if not all(keep_arg_mask):
        refuse_subclasses(m, "Inputs that repeat another one")
    kept = [number for number, keep in enumerate(keep_arg_mask) if keep]
    tangents = tangents_of_inputs(m)
    input_layouts = list(m.subclass_inp_meta)
    updated_layouts = m.subclass_fw_graph_out_meta[: m.num_mutated_inp_runtime_indices]
    if all(keep_arg_mask):
        return dataclasses.replace(m)
    return rewrite(
        m,
        input_info=[m.input_info[number] for number in kept],
        output_info=[_of_kept(output, add_dupe_map) for output in m.output_info],
        tangents={
            add_dupe_map[number]: tangent for number, tangent in tangents.items() if keep_arg_mask[number]
        },
        new_number=add_dupe_map,
        input_layouts=[input_layouts[number] for number in kept] if input_layouts else [],
        updated_layouts=[
            layout
            for number, layout in zip(m.mutated_inp_runtime_indices, updated_layouts, strict=False)
            if keep_arg_mask[number]
        ],
    )


def _of_kept(output: Any, add_dupe_map: Sequence[int]) -> Any:
    if not names_an_input(output):
        return output
    return dataclasses.replace(output, base_idx=add_dupe_map[output.base_idx])


def _check(m: Any, keep_arg_mask: Sequence[bool], add_dupe_map: Sequence[int]) -> None:
    inputs = len(m.input_info)
    if not len(keep_arg_mask) == len(add_dupe_map) == inputs:
        raise InconsistentMetadataError(
            f"Expected one entry for each of {inputs} inputs, got a mask of {len(keep_arg_mask)} and a map of "
            f"{len(add_dupe_map)}."
        )
    seen = 0
    for number, (keep, target) in enumerate(zip(keep_arg_mask, add_dupe_map, strict=True)):
        if keep and target != seen:
            raise InconsistentMetadataError(
                f"Input {number} is kept as number {seen}, but the map sends it to {target}. Kept inputs stay in "
                "order, and each is sent to its own place among them."
            )
        if not keep and not 0 <= target < seen:
            raise InconsistentMetadataError(
                f"Input {number} is removed and sent to {target}, where only {seen} kept inputs precede it. A "
                "repeated input is sent to the first of its kind, and the first input of all is kept."
            )
        seen += bool(keep)
