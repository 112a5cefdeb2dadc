"""What kernels take: scratch memory and time, measured; and a roofline of this machine."""

from __future__ import annotations

import json

import pytest
import torch
from memory_cases import capture
from torch import fx, nn

from aot_partition.budget import format_bytes, parse_budget, resolve_budget
from aot_partition.errors import InvalidBudgetError
from aot_partition.memory import cost
from aot_partition.memory.kernels import KernelProfile


def node_of(target, *arguments, **keywords) -> fx.Node:
    graph = fx.Graph()
    inputs = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            node = graph.placeholder("x")
            node.meta["val"] = argument
            inputs.append(node)
        else:
            inputs.append(argument)
    node = graph.call_function(target, tuple(inputs), keywords)
    node.meta["val"] = target(*arguments, **keywords)
    return node


def test_scratch_is_what_a_kernel_frees_before_it_returns():
    # logsumexp makes the exponentials, 4 bytes each, and returns one row.
    node = node_of(torch.ops.aten.logsumexp.default, torch.rand(64, 128), [1])
    profile = KernelProfile()
    profile.measure([node])
    assert 64 * 128 * 4 <= profile.scratch(node) <= 3 * 64 * 128 * 4


@pytest.mark.parametrize("target", [torch.ops.aten.relu.default, torch.ops.aten.t.default])
def test_a_plain_kernel_has_no_scratch(target):
    node = node_of(target, torch.rand(64, 128))
    profile = KernelProfile()
    profile.measure([node])
    assert profile.scratch(node) == 0


def test_a_call_that_fails_does_not_disturb_the_others():
    bad = node_of(torch.ops.aten.relu.default, torch.rand(4))
    bad.args = ("nonsense",)
    good = node_of(torch.ops.aten.logsumexp.default, torch.rand(64, 128), [1])
    after = node_of(torch.ops.aten.relu.default, torch.rand(100, 100))
    alone, together = KernelProfile(), KernelProfile()
    alone.measure([good])
    together.measure([bad, good, after])
    assert together.scratch(good) == alone.scratch(good) > 0
    assert together.scratch(after) == together.scratch(bad) == 0


def test_measuring_leaves_random_numbers_alone():
    node = node_of(torch.ops.aten.bernoulli.p, torch.rand(10), 0.5)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    KernelProfile(timed=True).measure([node])
    assert torch.equal(torch.rand(3), expected)


def test_a_calibration_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("AOT_PARTITION_CACHE", str(tmp_path))
    monkeypatch.setattr(cost, "CALIBRATION_SECONDS", 0.0)
    cost.calibrate.cache_clear()
    first = cost.calibrate(torch.device("cpu"))
    (entry,) = json.loads((tmp_path / "calibration.json").read_text()).values()
    assert entry["bandwidth"] == first.bandwidth
    cost.calibrate.cache_clear()
    monkeypatch.setattr(cost, "_measure", lambda device: pytest.fail("measured again"))
    assert cost.calibrate(torch.device("cpu")) == first
    cost.calibrate.cache_clear()


def test_a_calibration_that_measured_less_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("AOT_PARTITION_CACHE", str(tmp_path))
    monkeypatch.setattr(cost, "CALIBRATION_SECONDS", 0.0)
    path = tmp_path / "calibration.json"
    cost.calibrate.cache_clear()
    cost.calibrate(torch.device("cpu"))
    ((key, entry),) = json.loads(path.read_text()).items()
    for earlier in ({name: entry[name] for name in ("launch", "bandwidth")}, None, 1.0):
        path.write_text(json.dumps({key: earlier}))
        cost.calibrate.cache_clear()
        assert cost.calibrate(torch.device("cpu")).random > 0
        assert json.loads(path.read_text())[key].keys() == entry.keys()
    cost.calibrate.cache_clear()


def test_the_roofline_grows_with_work(monkeypatch):
    machine = cost.Calibration(1e-6, 1e10, {"float32": 1e11}, 1e9, 1e8)
    monkeypatch.setattr(cost, "calibrate", lambda device: machine)
    square = node_of(torch.ops.aten.mm.default, torch.rand(100, 100), torch.rand(100, 100))
    assert cost.roofline_seconds(square) == pytest.approx(1e-6 + 2e6 / 1e11)
    add = node_of(torch.ops.aten.add.Tensor, torch.rand(1000), torch.rand(1000))
    assert cost.roofline_seconds(add) == pytest.approx(1e-6 + 12000 / 1e10)
    exp = node_of(torch.ops.aten.exp.default, torch.rand(1000))
    assert cost.roofline_seconds(exp) == pytest.approx(1e-6 + 1000 / 1e9)
    dropout = node_of(torch.ops.aten.native_dropout.default, torch.rand(1000), 0.5, True)
    assert cost.roofline_seconds(dropout) == pytest.approx(1e-6 + 1000 / 1e8)
    softmax, weights = torch.ops.aten._softmax_backward_data.default, torch.rand(1000)
    gradient = node_of(softmax, weights, weights, 0, torch.float32)
    assert cost.roofline_seconds(gradient) == pytest.approx(1e-6 + 12000 / 1e10)


def test_profiled_costs_are_measured():
    step = capture(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.randn(64, 64))
    profile = KernelProfile()
    seconds = cost.cost_function("profile", step.joint, profile)
    products = [node for node in step.joint.graph.nodes if "mm" in str(node.target)]
    assert products and all(0 < seconds(node) == profile.seconds(node) for node in products)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (0.5, 0.5), (1, 1.0), (0, 0.0), (1000, 1000), ("6GiB", 6 * 2**30), ("1.5 MB", 1_500_000),
        ("40%", 0.4), ("0.25", 0.25), ("2048", 2048), ("7 b", 7), (".5", 0.5),
    ],
)  # fmt: skip
def test_budgets_are_read(given, parsed):
    assert parse_budget(given) == parsed
    assert type(parse_budget(given)) is type(parsed)


def test_a_fraction_is_of_the_peak():
    assert resolve_budget("50%", 1001) == 500
    assert resolve_budget(600, 1001) == 600


@pytest.mark.parametrize("given", ["", "GiB", "-3MiB", "1e3", None, [], 2.0, "120%", "3 stones"])
def test_budgets_that_are_wrong_say_what_is_right(given):
    with pytest.raises(InvalidBudgetError, match=r"0\.5|1\.0|GiB|GiB"):
        parse_budget(given)


def test_bytes_for_people():
    assert [format_bytes(n) for n in (0, 1023, 1536, 3 * 2**20, 6 * 2**30)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "6.0 GiB",
    ]  # fmt: skip
