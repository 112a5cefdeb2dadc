"""The shipped workloads: shapes, determinism, that they learn, and what is said when their data is missing."""

import sys

import pytest
import torch

from aot_registry.bench.errors import MissingWorkloadDataError, UnknownWorkloadError, UnusableDeviceError
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads import SHIPPED_WORKLOADS, build_workload, check_workload_name
from aot_registry.bench.workloads.text_gpt import CharacterGPT, load_text
from aot_registry.bench.workloads.workload import call_model, map_tensors


@pytest.fixture(params=list(SHIPPED_WORKLOADS))
def name(request):
    if request.param == "digits-conv":
        pytest.importorskip("sklearn", reason="digits-conv needs scikit-learn, the extra [bench]")
    return request.param


def test_digits_batches():
    pytest.importorskip("sklearn", reason="digits-conv needs scikit-learn, the extra [bench]")
    workload = build_workload("digits-conv", seed=0, device="cpu")
    assert len(workload.batches) == 1797 // 64
    for images, labels in workload.batches:
        assert images.shape == (64, 1, 8, 8)
        assert images.dtype == torch.float32
        assert labels.shape == (64,)
        assert labels.dtype == torch.int64
    images = torch.cat([images for images, _ in workload.batches])
    assert images.min() == 0
    assert images.max() == 1
    labels = torch.cat([labels for _, labels in workload.batches])
    # The classes are balanced in the data set: 174 to 183 images each, of which five are left over.
    assert labels.bincount().min() >= 169
    assert labels.bincount().max() <= 183


def test_text_batches_are_windows_of_the_text():
    workload = build_workload("text-gpt", seed=0, device="cpu")
    text = load_text()
    alphabet = sorted(set(text))
    for characters, successors in workload.batches[:3]:
        assert characters.shape == successors.shape == (8, 64)
        assert torch.equal(characters[:, 1:], successors[:, :-1])
        for row in characters:
            assert "".join(alphabet[index] for index in row) in text


def test_attention_is_causal():
    torch.manual_seed(0)
    model = CharacterGPT(vocabulary=7, context=10, width=8, heads=2, depth=2).eval()
    characters = torch.randint(7, (2, 10))
    changed = characters.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 7
    before, after = model(characters), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_same_seed_same_workload(name):
    first, second, other = (build_workload(name, seed=seed, device="cpu") for seed in (3, 3, 4))
    for one, two in zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    for one, two in zip(first.batches, second.batches, strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    assert not torch.equal(first.batches[0][0], other.batches[0][0])
    assert any(
        not torch.equal(one, two)
        for one, two in zip(first.model.parameters(), other.model.parameters(), strict=True)
    )


def test_building_leaves_the_random_state_alone(name):
    state = torch.get_rng_state()
    build_workload(name, seed=0, device="cpu")
    assert torch.equal(torch.get_rng_state(), state)


def test_it_learns(name):
    run = TrainingRun(build_workload(name, seed=0, device="cpu"), lambda model: model, seed=0)
    run.take_steps(40)
    first, last = sum(run.losses[:5]) / 5, sum(run.losses[-5:]) / 5
    assert last < 0.8 * first, run.losses


def test_missing_scikit_learn_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        MissingWorkloadDataError, match=r"pip install 'aot-registry\[bench\]'.*errors/missing-work"
    ):
        build_workload("digits-conv", seed=0)


def test_missing_topics(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(MissingWorkloadDataError, match=r"pydoc_data\.topics, which this Python lacks"):
        build_workload("text-gpt", seed=0)


def test_stripped_topics(monkeypatch):
    import pydoc_data.topics

    monkeypatch.setattr(pydoc_data.topics, "topics", {"assert": "too short"})
    with pytest.raises(MissingWorkloadDataError, match="stripped to 9 characters"):
        build_workload("text-gpt", seed=0)


@pytest.mark.parametrize("device", ["cud", "xla:7"])
def test_unusable_device(device):
    with pytest.raises(
        UnusableDeviceError, match=f"Can't move workload text-gpt to device '{device}'.*Usable here: cpu"
    ):
        build_workload("text-gpt", seed=0, device=device)


@pytest.mark.parametrize(("wrong", "close"), [("digit-conv", "digits-conv"), ("text_gpt", "text-gpt")])
def test_unknown_workload_names_the_close_match(wrong, close):
    with pytest.raises(UnknownWorkloadError, match=f"no workload '{wrong}'. Did you mean '{close}'"):
        check_workload_name(wrong)


def test_unknown_workload_without_a_close_match_lists_all():
    with pytest.raises(UnknownWorkloadError, match=r"'qqq'\. Workloads that ship: digits-conv, text-gpt"):
        check_workload_name("qqq")


def test_inputs_may_be_a_tensor_a_tuple_or_a_dict():
    def model(x, y=0):
        return x - y

    assert call_model(model, 5) == 5
    assert call_model(model, (5, 2)) == 3
    assert call_model(model, {"x": 5, "y": 1}) == 4


def test_map_tensors_reaches_into_containers():
    tensor = torch.zeros(2)
    mapped = map_tensors({"a": [tensor, 1], "b": (tensor,)}, lambda value: value.shape)
    assert mapped == {"a": [(2,), 1], "b": ((2,),)}
