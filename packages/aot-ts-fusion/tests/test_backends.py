"""The backends: their options, what they say, and that they are eager PyTorch."""

from __future__ import annotations

import gc
import logging

import pytest
import torch

import aot_core
import aot_ts_fusion
from aot_ts_fusion import executors


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.GELU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 16, 5),
    )


def step(model, function, x):
    model.zero_grad()
    loss = function(x).square().mean()
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def decisions_of(backend, **options):
    model = make_model()
    with aot_core.record_reports() as reports:
        step(model, torch.compile(model, backend=backend, options=options), torch.randn(3, 1, 6, 6))
    return [decision for report in reports for decision in report.decisions]


ALL = [
    aot_ts_fusion.aot_ts_fusion,
    aot_ts_fusion.aot_ts_nvfuser,
    aot_ts_fusion.aot_ts_nvfuser_nodecomps,
    aot_ts_fusion.aot_ts_nnc,
    aot_ts_fusion.aot_mem_efficient_fusion,
    aot_ts_fusion.aot_mem_efficient_fusion_no_decomp,
]


@pytest.mark.parametrize("backend", ALL, ids=lambda each: each.name)
def test_a_step_is_eagers(backend):
    ours, eagers = make_model(), make_model()
    function = torch.compile(ours, backend=backend)
    for _ in range(3):
        x = torch.randn(3, 1, 6, 6)
        torch.testing.assert_close(step(ours, function, x), step(eagers, eagers, x))
    torch.testing.assert_close(ours.state_dict(), eagers.state_dict())


def test_whole_graphs_run_in_torchscript():
    splits = [each for each in decisions_of(aot_ts_fusion.aot_ts_fusion) if each.action == "split"]
    assert splits == []


def test_the_second_shape_is_right():
    function = torch.compile(
        lambda x: x.reshape(-1, 2).sum(0) / x.shape[0], backend=aot_ts_fusion.aot_ts_fusion, dynamic=True
    )
    for rows in (4, 6, 10):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(function(x), x.reshape(-1, 2).sum(0) / rows)


def test_fusers_are_told():
    codes = {each.code: each.detail for each in decisions_of(aot_ts_fusion.aot_ts_fusion, fuser="fuser1")}
    assert codes["torchscript-fuser"] == "fuser1, by the options"
    codes = {each.code: each.detail for each in decisions_of(aot_ts_fusion.aot_ts_nnc)}
    assert codes["torchscript-fuser"] == "fuser1, by the options"
    assert "torchscript-fuser" not in {each.code for each in decisions_of(aot_ts_fusion.aot_ts_fusion)}


@pytest.fixture
def ambient():
    """What ``with torch.jit.fuser(name)`` switches, without its deprecation warning."""
    from aot_ts_fusion import _compat

    return _compat.fuser


def test_a_fuser_that_is_in_force_is_honoured_and_told(ambient):
    with ambient("fuser0"):
        codes = {each.code: each.detail for each in decisions_of(aot_ts_fusion.aot_ts_fusion)}
    assert codes["torchscript-fuser"] == "fuser0, by torch.jit.fuser in force"


def test_a_fuser_leaves_the_process_as_it_was(ambient):
    from aot_ts_fusion import _compat

    before = _compat._read_switches()
    decisions_of(aot_ts_fusion.aot_ts_fusion, fuser="fuser3")
    assert _compat._read_switches() == before


@pytest.mark.parametrize("options", [{"fuser": "nnc"}, {"fusr": "fuser1"}, {"executor": "nvfuser"}])
def test_options_are_checked(options):
    with pytest.raises(Exception, match=r"InvalidOptionValueError|UnknownOptionError"):
        decisions_of(aot_ts_fusion.aot_ts_fusion, **options)


class Halves:
    """Stands for an executor: takes the pointwise operators of ATen, and runs them as they are."""

    obstacle = None
    compiled = 0

    def __init__(self, name):
        assert name == "nvfuser"

    def find_regions(self, gm):
        pointwise = (torch.ops.aten.gelu.default, torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor)
        return [[node] for node in gm.graph.nodes if node.target in pointwise]

    @staticmethod
    def compile_region(gm, example_inputs):
        Halves.compiled += 1
        return lambda inputs: list(gm(*inputs))


def test_regions_are_called_and_freed(monkeypatch):
    monkeypatch.setattr(executors, "RegionExecutor", Halves)
    before = aot_ts_fusion.num_fusions()
    ours, eagers = make_model(), make_model()
    x = torch.randn(3, 1, 6, 6)
    with aot_core.record_reports() as reports:
        function = torch.compile(ours, backend=aot_ts_fusion.aot_ts_nvfuser_nodecomps)
        torch.testing.assert_close(step(ours, function, x), step(eagers, eagers, x))
    found = [each for each in reports[0].decisions if each.code == "executor"]
    assert [each.stage for each in found] == ["forward", "backward"]
    assert found[0].detail.startswith("nvfuser compiled ")
    assert all(
        bool(each.nodes) == (each.action == "fuse") for each in reports[0].decisions if each.code == "region"
    )
    assert sum(each.code == "region" for each in reports[0].decisions) == Halves.compiled
    assert aot_ts_fusion.num_fusions() - before == Halves.compiled > 0
    del function
    torch.compiler.reset()
    gc.collect()
    assert aot_ts_fusion.num_fusions() == before


def test_regions_of_aot_partition_by_eager_kernels():
    found = decisions_of(aot_ts_fusion.aot_ts_nvfuser, executor="aten")
    assert {each.code for each in found} >= {"region", "executor"}


@pytest.fixture
def without_nvfuser(monkeypatch):
    class Unusable:
        obstacle = "nvFuser is not installed. Install it."

        def __init__(self, name):
            pass

    monkeypatch.setattr(executors, "RegionExecutor", Unusable)
    monkeypatch.setattr(executors, "_warned", set())


@pytest.mark.usefixtures("without_nvfuser")
def test_without_nvfuser_there_is_one_warning_and_a_reason_in_each_graph(caplog):
    with caplog.at_level(logging.WARNING, logger="aot_ts_fusion"):
        found = [
            *decisions_of(aot_ts_fusion.aot_ts_nvfuser),
            *decisions_of(aot_ts_fusion.aot_ts_nvfuser_nodecomps),
        ]
    reasons = [each for each in found if each.code == "nvfuser-unusable"]
    assert [each.stage for each in reasons] == ["forward", "backward"] * 2
    assert {each.detail for each in reasons} == {"nvFuser is not installed. Install it."}
    warned = [record for record in caplog.records if record.name.startswith("aot_ts_fusion")]
    assert len(warned) == 1 and "plain TorchScript" in warned[0].getMessage()


@pytest.mark.usefixtures("without_nvfuser")
def test_strict_raises_without_nvfuser():
    with pytest.raises(Exception, match="UnusableFuserError") as caught:
        decisions_of(aot_ts_fusion.aot_ts_nvfuser, strict=True)
    assert "See errors/unusable-fuser" in str(caught.value)


@pytest.fixture
def without_nnc(monkeypatch):
    from aot_ts_fusion import _compat, executors

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(_compat, "can_fuse_on_cpu", lambda: False)
    monkeypatch.setattr(executors, "_warned", set())


NNC_ASKED_FOR = [(aot_ts_fusion.aot_ts_nnc, {}), (aot_ts_fusion.aot_ts_fusion, {"fuser": "fuser1"})]


@pytest.mark.usefixtures("without_nnc")
@pytest.mark.parametrize(("backend", "options"), NNC_ASKED_FOR, ids=["aot_ts_nnc", "fuser1"])
def test_without_nnc_there_is_one_warning_and_a_reason_in_each_graph(backend, options, caplog):
    with caplog.at_level(logging.WARNING, logger="aot_ts_fusion"):
        found = [each for each in decisions_of(backend, **options) if each.code == "nnc-unusable"]
    assert [each.stage for each in found] == ["forward", "backward"]
    assert {"LLVM" in each.detail and "aot_ts_fusion" in each.detail for each in found} == {True}
    warned = [record for record in caplog.records if record.name.startswith("aot_ts_fusion")]
    assert len(warned) == 1 and "plain TorchScript" in warned[0].getMessage()


@pytest.mark.usefixtures("without_nnc")
@pytest.mark.parametrize(("backend", "options"), NNC_ASKED_FOR, ids=["aot_ts_nnc", "fuser1"])
def test_strict_raises_without_nnc(backend, options):
    with pytest.raises(Exception, match="UnusableFuserError: Fuser 'fuser1', which is NNC, can't") as caught:
        decisions_of(backend, strict=True, **options)
    assert "See errors/unusable-fuser" in str(caught.value)


def test_with_nnc_nothing_is_said(monkeypatch):
    from aot_core.protocol import Availability
    from aot_ts_fusion import nnc

    monkeypatch.setattr(nnc, "nnc_availability", lambda: Availability(True, "as if"))
    assert "nnc-unusable" not in {each.code for each in decisions_of(aot_ts_fusion.aot_ts_nnc, strict=True)}


@pytest.mark.usefixtures("without_nnc")
def test_other_fusers_are_not_nnc():
    codes = {each.code for each in decisions_of(aot_ts_fusion.aot_ts_fusion, fuser="fuser3", strict=True)}
    assert "nnc-unusable" not in codes


def test_the_building_blocks_make_a_backend():
    kwargs = aot_ts_fusion.mem_efficient_fusion_kwargs(use_decomps=True)
    assert "decompositions" in kwargs
    assert "decompositions" not in aot_ts_fusion.mem_efficient_fusion_kwargs(use_decomps=False)
    ours, eagers = make_model(), make_model()
    backend = aot_core.aot_autograd(name="mine", **kwargs)
    x = torch.randn(3, 1, 6, 6)
    torch.testing.assert_close(step(ours, torch.compile(ours, backend=backend), x), step(eagers, eagers, x))


def test_the_building_blocks_are_debug_backends():
    for backend in (aot_ts_fusion.aot_mem_efficient_fusion, aot_ts_fusion.aot_mem_efficient_fusion_no_decomp):
        assert "debug" in backend.tags
        with backend.backend_ctx_ctor():
            pass
