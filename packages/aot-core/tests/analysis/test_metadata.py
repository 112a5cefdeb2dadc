"""What must hold of the metadata after merging, on made-up metadata with a label for every tangent."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aot_core import InconsistentMetadataError, UnsupportedAliasingError
from aot_core.analysis import create_synthetic_base_metadata, remove_dupe_metadata


def make(cls, **fields):
    """Make one of torch's records from those of the fields that this torch has."""
    return cls(**{name: value for name, value in fields.items() if name in inspect.signature(cls).parameters})


@st.composite
def input_infos(draw):
    from torch._functorch._aot_autograd.schemas import InputAliasInfo

    data = draw(st.booleans())
    return make(
        InputAliasInfo,
        is_leaf=True,
        mutates_data=data,
        mutates_metadata=draw(st.booleans()),
        mutations_hidden_from_autograd=draw(st.booleans()),
        mutations_under_no_grad_or_inference_mode=data and draw(st.booleans()),
        mutation_inductor_storage_resize=False,
        mutates_storage_metadata=False,
        mutation_is_shallow_copy_data=False,
        requires_grad=draw(st.booleans()),
        keep_input_mutations=True,
    )


@st.composite
def outputs(draw, inputs):
    from torch._functorch._aot_autograd.schemas import OutputAliasInfo, OutputType

    kind = draw(
        st.sampled_from(
            ["non_alias", "alias_of_input", "is_input", "alias_of_intermediate", "unsafe_view_alias"]
        )
    )
    number = {"non_alias": None, "unsafe_view_alias": None, "alias_of_intermediate": 7}
    requires_grad = draw(st.booleans())
    return make(
        OutputAliasInfo,
        output_type=OutputType[kind],
        raw_type=torch.Tensor,
        base_idx=number[kind] if kind in number else draw(st.integers(0, inputs - 1)),
        dynamic_dims=set(),
        requires_grad=requires_grad,
        requires_grad_for_backward=requires_grad,
    )


def updated(meta) -> list[int]:
    return [
        number
        for number, info in enumerate(meta.input_info)
        if info.mutation_type.name == "MUTATED_OUT_GRAPH" and info.mutates_data and info.requires_grad
    ]


def metadata(infos, output_infos, **fields):
    """Metadata with tangents whose descriptions are labels."""
    from torch._functorch._aot_autograd.schemas import PlainTensorMeta, ViewAndMutationMeta

    meta = make(
        ViewAndMutationMeta,
        input_info=list(infos),
        output_info=list(output_infos),
        num_intermediate_bases=1,
        keep_input_mutations=True,
        traced_tangents=[],
        traced_tangents_descs=[],
        subclass_inp_meta=[PlainTensorMeta(index) for index in range(len(infos))],
        subclass_fw_graph_out_meta=[],
        subclass_tangent_meta=[],
        is_train=True,
        **fields,
    )
    meta.traced_tangents_descs = [f"input {number}" for number in updated(meta)]
    meta.traced_tangents_descs += [
        f"output {number}"
        for number, output in enumerate(output_infos)
        if output.output_type.name in ("non_alias", "unsafe_view_alias") and output.requires_grad
    ]
    meta.traced_tangents_descs.append("base 0")
    tangent = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    meta.traced_tangents = [tangent.clone() for _ in meta.traced_tangents_descs]
    meta.subclass_tangent_meta = [PlainTensorMeta(index) for index in range(len(meta.traced_tangents))]
    return meta


@st.composite
def functions(draw):
    """Metadata, and for each input the number of the tensor that it is."""
    tensors = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
    # One tensor, one record: torch collects it for all occurrences at once.
    record = {tensor: draw(input_infos()) for tensor in tensors}
    infos = [dataclasses.replace(record[tensor]) for tensor in tensors]
    meta = metadata(infos, draw(st.lists(outputs(len(infos)), max_size=4)), grad_enabled_mutation=False)
    meta.tokens = {"ordered": torch.empty(0)}
    meta.static_input_indices = draw(st.lists(st.integers(0, len(infos) - 1), unique=True).map(sorted))
    return meta, tensors


def without_duplicates(tensors):
    firsts = list(dict.fromkeys(tensors))
    keep = [tensor not in tensors[:number] for number, tensor in enumerate(tensors)]
    return keep, [firsts.index(tensor) for tensor in tensors]


@given(functions())
def test_what_remains_without_duplicates(function):
    meta, tensors = function
    keep, places = without_duplicates(tensors)
    before = dataclasses.replace(meta)
    after = remove_dupe_metadata(meta, keep, places)

    kept = [number for number, is_first in enumerate(keep) if is_first]
    assert after.input_info == [meta.input_info[number] for number in kept]
    labels = [f"input {number}" for number in updated(meta) if keep[number]]
    labels += [label for label in meta.traced_tangents_descs if not label.startswith("input")]
    assert after.traced_tangents_descs == labels
    assert len(updated(after)) == sum(label.startswith("input") for label in labels)
    assert all(tangent.is_contiguous(memory_format=torch.channels_last) for tangent in after.traced_tangents)
    assert len(after.subclass_tangent_meta) == len(labels)
    for old, new in zip(meta.output_info, after.output_info, strict=True):
        is_of_input = old.output_type.name in ("alias_of_input", "is_input")
        assert new.base_idx == (places[old.base_idx] if is_of_input else old.base_idx)
    assert after.static_input_indices == sorted({places[number] for number in meta.static_input_indices})
    assert after.tokens == meta.tokens and after.grad_enabled_mutation is False
    assert meta == before, "the metadata given was changed"


@given(functions())
def test_nothing_repeated_nothing_changed(function):
    meta, _ = function
    count = len(meta.input_info)
    assert remove_dupe_metadata(meta, [True] * count, list(range(count))) == meta


@given(functions())
def test_removal_in_two_steps_is_removal_in_one(function):
    meta, tensors = function
    at_once = remove_dupe_metadata(meta, *without_duplicates(tensors))
    # First only the repetitions of the first tensor, then the others.
    step = [tensor if tensor == tensors[0] else -1 - number for number, tensor in enumerate(tensors)]
    keep, places = without_duplicates(step)
    halfway = remove_dupe_metadata(meta, keep, places)
    remaining = [tensor for tensor, is_first in zip(tensors, keep, strict=True) if is_first]
    in_two = remove_dupe_metadata(halfway, *without_duplicates(remaining))
    assert in_two == at_once
    assert in_two.traced_tangents_descs == at_once.traced_tangents_descs


@pytest.mark.parametrize(
    ("keep", "places"),
    [
        ([True], [0, 0]),
        ([True, True], [0]),
        ([False, True], [0, 0]),
        ([True, True], [0, 0]),
        ([True, False], [0, 1]),
    ],
)
def test_contradictory_maps_are_refused(keep, places):
    from torch._functorch._aot_autograd.schemas import InputAliasInfo

    info = make(InputAliasInfo, **dict.fromkeys(inspect.signature(InputAliasInfo).parameters, False))
    with pytest.raises(InconsistentMetadataError):
        remove_dupe_metadata(metadata([info, info], []), keep, places)


@st.composite
def merges(draw):
    """Metadata with some inputs that are views of one of two bases, one number, and the others."""
    groups = draw(st.lists(st.sampled_from(["p", "q", "own"]), min_size=2, max_size=6))
    assume(any(groups.count(name) > 1 for name in "pq"))
    names = [name for name in dict.fromkeys(groups) if name != "own" and groups.count(name) > 1]
    bases = {name: torch.arange(8.0) for name in names}
    outer: list = [bases[group][:4] if group in bases else torch.ones(3) for group in groups]
    number = draw(st.integers(0, len(outer)))
    outer.insert(number, 5)
    groups.insert(number, "number")
    others = [n for n, value in enumerate(outer) if not isinstance(value, torch.Tensor)]
    others += [n for n, group in enumerate(groups) if group not in names and group != "number"]
    inner = [*bases.values(), *(outer[n] for n in others)]
    places = [
        (names.index(group), outer[n]) if group in names else len(names) + others.index(n)
        for n, group in enumerate(groups)
    ]
    infos = [draw(input_infos()) for _ in outer]
    meta = metadata(infos, draw(st.lists(outputs(len(infos)), max_size=4)), grad_enabled_mutation=True)
    return meta, places, outer, inner


@given(merges())
def test_what_remains_after_merging(merge):
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    meta, places, outer, inner = merge
    descriptions = [PlainAOTInput(number) for number in range(len(inner))]
    after, reshaped = create_synthetic_base_metadata(meta, places, outer, inner, descriptions)

    assert reshaped == [
        number
        for number, place in enumerate(places)
        if isinstance(place, tuple) and meta.input_info[number].mutates_metadata
    ]
    for number, info in enumerate(after.input_info):
        views = [
            i
            for i, place in enumerate(places)
            if place == number or (isinstance(place, tuple) and place[0] == number)
        ]
        old = [meta.input_info[view] for view in views]
        if not isinstance(places[views[0]], tuple):
            assert [info] == old
            continue
        assert info.mutates_data and not info.mutates_metadata and not info.mutates_storage_metadata
        assert info.requires_grad == any(view.requires_grad for view in old)
        for flag in ("mutations_hidden_from_autograd", "mutations_under_no_grad_or_inference_mode"):
            if getattr(info, flag) and any(view.mutates_data for view in old):
                assert all(getattr(view, flag) for view in old if view.mutates_data)
        assert info.is_leaf == all(view.is_leaf for view in old) == any(view.is_leaf for view in old)

    assert len(after.output_info) == len(meta.output_info) + len(reshaped)
    for old, new in zip(meta.output_info, after.output_info, strict=False):
        if old.output_type.name not in ("alias_of_input", "is_input"):
            assert new == old
            continue
        place = places[old.base_idx]
        merged = isinstance(place, tuple)
        assert new.base_idx == (place[0] if merged else place)
        assert new.output_type.name == ("alias_of_input" if merged else old.output_type.name)
    for number, new in zip(reshaped, after.output_info[len(meta.output_info) :], strict=True):
        assert (new.output_type.name, new.base_idx) == ("alias_of_input", places[number][0])

    tail = [label for label in meta.traced_tangents_descs if not label.startswith("input")]
    assert after.traced_tangents_descs[len(updated(after)) :] == tail
    assert len(after.traced_tangents) == len(updated(after)) + len(tail)
    assert after.grad_enabled_mutation is True


def pair_over(one, other):
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput
    from torch._functorch._aot_autograd.schemas import InputAliasInfo

    info = make(InputAliasInfo, **dict.fromkeys(inspect.signature(InputAliasInfo).parameters, False))
    infos = [
        dataclasses.replace(info, mutates_data=True, is_leaf=True),
        dataclasses.replace(info, is_leaf=True),
    ]
    base = torch.empty(0)
    return create_synthetic_base_metadata(
        metadata(infos, []), [(0, one), (0, other)], [one, other], [base], [PlainAOTInput(0)]
    )


def test_different_dtypes_are_refused():
    storage = torch.zeros(8)
    with pytest.raises(UnsupportedAliasingError, match=r"torch\.float32.*torch\.int32"):
        pair_over(storage, storage.view(torch.int32))


def test_views_of_different_bases_are_refused():
    storage = torch.zeros(8)
    with pytest.raises(UnsupportedAliasingError, match="views of another"):
        pair_over(storage[:4], storage.detach()[2:])
