"""The nvprims backends: options, reports, and that a step is eager PyTorch's."""

from __future__ import annotations

import pytest
import torch

import aot_core
from aot_partition import create_nvprims_backend
from aot_partition.nvprims_backends import aot_nvprims_aten, aot_nvprims_nvfuser


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.batch = torch.nn.BatchNorm1d(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.drop = torch.nn.Dropout(0.3)

    def forward(self, x):
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return self.drop(self.batch(x)).softmax(-1)


def step(model, function, x, seed=1):
    model.zero_grad()
    torch.manual_seed(seed)
    out = function(x)
    out.square().sum().backward()
    state = [buffer.clone() for buffer in model.buffers()]
    return out.detach(), [p.grad.clone() for p in model.parameters()], state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_step_is_eagers(dtype, seed):
    model, twin = Block().to(dtype), Block().to(dtype)
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=aot_nvprims_aten)
    # Taken apart, a kernel rounds to bfloat16 in other places than its own.
    tolerance = {"rtol": 0.1, "atol": 0.02} if dtype is torch.bfloat16 else {}
    for i in range(2):
        x = torch.randn(8, 16, dtype=dtype)
        got, expected = step(model, compiled, x, seed + i), step(twin, twin, x, seed + i)
        torch.testing.assert_close(got, expected, **tolerance)


def test_inference_and_sizes_that_vary():
    model = Block().eval()
    compiled = torch.compile(model, backend=aot_nvprims_aten, dynamic=True)
    with torch.no_grad(), aot_core.record_reports() as reports:
        compiled(torch.randn(3, 16))
        made = len(reports)
        for size in (5, 8):
            x = torch.randn(size, 16)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(reports) == made


def codes(report):
    return [decision.code for decision in report.decisions]


def test_what_it_did_is_reported():
    model = Block()
    with aot_core.record_reports() as (reports):
        step(model, torch.compile(model, backend=aot_nvprims_aten), torch.randn(8, 16))
    (report,) = reports
    assert codes(report).count("regions") == 2
    regions = [d for d in report.decisions if d.code == "region"]
    assert {d.stage for d in regions} == {"forward", "backward"}
    inside = [int(d.detail.split()[3]) for d in report.decisions if d.code == "regions"]
    assert sum(len(d.nodes) for d in regions) == sum(inside) > 0
    assert len({(d.stage, name) for d in regions for name in d.nodes}) == sum(inside), (
        "a node is in two regions"
    )
    refusals = {d.subject: d.detail for d in report.decisions if d.code == "not-claimed"}
    assert set(refusals) == {"aten.addmm.default", "aten.mm.default"}
    (source,) = {d.source for d in report.decisions if d.subject == "aten.addmm.default"}
    assert source.startswith(("test_nvprims_backends.py:", "linear.py:"))


def graphs_of(model, x, **options):
    """Return what ran of a forward: names of operators inside and outside of regions."""
    inside, outside = set(), set()

    class Watcher:
        name, device_types = "watcher", None

        def availability(self):
            return aot_core.Availability(True)

        def refuse(self, node):
            return None

        def compile_region(self, subgraph, example_inputs):
            inside.update(str(n.target) for n in subgraph.graph.nodes if n.op == "call_function")
            return lambda inputs: subgraph(*inputs)

    backend = create_nvprims_backend(executor=Watcher(), **options)
    with torch.no_grad(), aot_core.record_reports() as reports:
        torch.compile(model, backend=backend)(x)
    outside.update(d.subject for d in reports[0].decisions if d.code == "not-claimed")
    return inside, outside


def test_skipped_operators_stay_whole():
    model, x = Block().eval(), torch.randn(8, 16)
    inside, outside = graphs_of(model, x)
    assert "aten.erf.default" in inside and "aten.gelu.default" not in inside | outside
    inside, outside = graphs_of(model, x, skip_ops=["aten.gelu", torch.ops.aten.exp])
    assert "aten.erf.default" not in inside
    assert {"aten.gelu.default", "aten.exp.default"} <= outside


def test_products_on_request():
    model, x = Block().eval(), torch.randn(8, 16)
    assert "aten.addmm.default" in graphs_of(model, x)[1]
    assert "aten.addmm.default" in graphs_of(model, x, linear=True)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip_ops": ["aten.geluu"]}, "skip_ops expects operators such as"),
        ({"skip_ops": "aten.gelu"}, "InvalidOptionValueError"),
        ({"matmull": True}, "UnknownOptionError.*matmul"),
        ({"sdpa": 1}, "InvalidOptionValueError"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(Exception, match=message):
        torch.compile(torch.nn.Linear(4, 1), backend=aot_nvprims_aten, options=options)(torch.ones(2, 4))


def test_options_of_a_made_backend_are_defaults():
    backend = create_nvprims_backend(executor="aten", matmul=True, skip_ops=["aten.gelu"])
    settings = backend.settings_type()
    assert (settings.matmul, settings.linear, settings.skip_ops) == (True, False, ["aten.gelu"])
    assert settings.allow == ("matmul",)
    assert aot_nvprims_aten.settings_type().allow == ()
    with pytest.raises(aot_core.UnknownOptionError):
        create_nvprims_backend(executor="aten", matmull=True)


def test_names():
    assert (aot_nvprims_aten.name, aot_nvprims_nvfuser.name) == ("nvprims_aten", "nvprims_nvfuser")
    assert create_nvprims_backend(executor="pack.age:Fast").name == "nvprims_Fast"
    assert create_nvprims_backend(executor="aten", name="mine").name == "mine"
