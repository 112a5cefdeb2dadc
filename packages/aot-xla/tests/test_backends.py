"""The backends on a device that is faked: what is moved, compiled, seeded, reported and refused."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import aot_xla
from aot_xla import Activity, activity
from aot_xla.backends import (
    aot_torchxla_trace_once,
    aot_torchxla_trivial,
    torchxla_trace_once,
    torchxla_trivial,
)
from aot_xla.errors import InferenceOnlyError, MissingTorchXlaError, UnsupportedDtypeError
from aot_xla.recompilation import WARN_AFTER

TRAINING = [aot_torchxla_trace_once, aot_torchxla_trivial]
INFERENCE = [torchxla_trace_once, torchxla_trivial]
by_name = {"ids": lambda backend: backend.name}


def perceptron():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train(model, run, steps=3):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        run(torch.randn(5, 4, generator=generator)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("backend", TRAINING, **by_name)
class TestTraining:
    def test_state_is_eagers(self, fake_device, backend):
        model = perceptron()
        expected = copy.deepcopy(model)
        train(expected, expected)
        train(model, torch.compile(model, backend=backend))
        torch.testing.assert_close(model.state_dict(), expected.state_dict())
        assert not any(fake_device.holds(p) or fake_device.holds(p.grad) for p in model.parameters())

    def test_what_a_step_moves(self, fake_device, backend, reports):
        """There: four changed parameters, the batch, the loss's gradient. Back: the output, four gradients."""
        model = perceptron()
        run = torch.compile(model, backend=backend)
        train(model, run)
        before = activity(*reports)
        train(model, run, steps=2)
        step = activity(*reports) - before
        # The first of the two finds the parameters as the step before left them: changed as well.
        assert (step.tensors_to_xla, step.tensors_from_xla) == (2 * 6, 2 * 5)
        assert step.xla_executions == 2 * 2
        assert step.bytes_from_xla == 2 * 4 * (5 * 2 + sum(p.numel() for p in model.parameters()))

    def test_saved_values_stay_on_the_device(self, fake_device, backend):
        saved = []

        def pack(value):
            saved.append(value)
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            out = torch.compile(lambda x: x.sin().exp().sin(), backend=backend)(
                torch.ones(3, requires_grad=True)
            )
        computed = [value for value in saved if value.grad_fn is None and not value.requires_grad]
        assert computed
        assert all(fake_device.holds(value) for value in computed)
        assert not fake_device.holds(out)

    def test_a_checkpointed_mask_is_saved_not_drawn_again(self, fake_device, backend, reports):
        def model(x):
            return checkpoint(lambda x: F.dropout(x, 0.5).square(), x, use_reentrant=False)

        x = torch.ones(64, requires_grad=True)
        out = torch.compile(model, backend=backend)(x)
        out.sum().backward()
        assert torch.equal(x.grad, 2 * out.detach())
        assert "random-not-recomputed" in {d.code for report in reports for d in report.decisions}


@pytest.mark.parametrize("backend", TRAINING + INFERENCE, **by_name)
class TestInference:
    def test_unchanged_parameters_are_moved_once(self, fake_device, backend, reports):
        model = perceptron()
        run = torch.compile(model, backend=backend)
        with torch.no_grad():
            moved = []
            for _ in range(4):
                before = activity(*reports)
                x = torch.randn(5, 4)
                torch.testing.assert_close(run(x), model(x))
                moved.append((activity(*reports) - before).tensors_to_xla)
        assert moved == [5, 1, 1, 1]

    def test_a_hidden_write_is_followed(self, fake_device, backend):
        model = perceptron()
        run, x = torch.compile(model, backend=backend), torch.randn(5, 4)
        with torch.no_grad():
            run(x)
            model[0].weight.data.mul_(2)
            torch.testing.assert_close(run(x), model(x))

    def test_option_versions(self, fake_device, backend):
        model = perceptron()
        run = torch.compile(model, backend=backend, options={"detect_writes": "versions"})
        with torch.no_grad():
            x = torch.randn(5, 4)
            first = run(x)
            model[0].weight.data.mul_(2)
            assert torch.equal(run(x), first)
            model[0].weight.mul_(1)
            torch.testing.assert_close(run(x), model(x))

    def test_dropout_follows_torchs_seed(self, fake_device, backend):
        run, x = torch.compile(lambda x: F.dropout(x, 0.5), backend=backend), torch.ones(64)
        with torch.no_grad():
            torch.manual_seed(3)
            first, second = run(x), run(x)
            torch.manual_seed(3)
            assert torch.equal(run(x), first)
        assert not torch.equal(first, second)
        assert fake_device.random_state() == fake_device.FIRST_STATE, "the device's own state has moved"
        assert len(set(fake_device.seeds)) == 3

    def test_nothing_is_drawn_where_nothing_is_random(self, fake_device, backend):
        before = torch.get_rng_state()
        with torch.no_grad():
            torch.compile(perceptron(), backend=backend)
            state = torch.get_rng_state()
            model = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x), backend=backend)
            model(torch.ones(1, 2, 3, 4))
        assert torch.equal(state, torch.get_rng_state())
        assert not torch.equal(before, state)  # a perceptron was made
        assert fake_device.seeds == []

    def test_outputs_that_are_no_tensors(self, fake_device, backend):
        def mixed(x):
            return None, x, x + 1, x.shape[0], 3.5, (x + 1) * 2

        x = torch.ones(3)
        with torch.no_grad():
            for n in (3, 4, 5):
                got = torch.compile(mixed, backend=backend)(torch.ones(n))
                assert (got[0], got[3], got[4]) == (None, n, 3.5)
                torch.testing.assert_close(got[5], (torch.ones(n) + 1) * 2)
        assert not any(fake_device.holds(value) for value in got if isinstance(value, torch.Tensor))
        del x

    def test_nothing_to_compute(self, fake_device, backend, reports):
        x = torch.ones(3)
        with torch.no_grad():
            assert torch.compile(lambda x: (x, 1), backend=backend)(x)[0] is x
        assert activity(*reports).xla_executions == 0

    def test_factories_without_a_device_go_to_it(self, fake_device, backend):
        with torch.no_grad():
            got = torch.compile(lambda x: torch.arange(3) + torch.zeros(3) + x, backend=backend)(
                torch.ones(3)
            )
        assert got.tolist() == [1, 2, 3]

    def test_a_dtype_that_the_device_mistakes_is_refused(self, fake_device, backend):
        fake_device.misplaced_dtype = torch.uint16
        with pytest.raises(Exception, match="uint16") as caught, torch.no_grad():
            torch.compile(lambda x: x.to(torch.float32) * 2, backend=backend)(
                torch.ones(3, dtype=torch.uint16)
            )
        assert isinstance(caught.value.inner_exception, UnsupportedDtypeError)


@pytest.mark.parametrize("backend", INFERENCE, **by_name)
def test_a_backward_of_inference_raises(fake_device, backend, reports):
    model, x = perceptron(), torch.randn(5, 4)
    out = torch.compile(model, backend=backend)(x)
    torch.testing.assert_close(out, model(x))
    with pytest.raises(InferenceOnlyError, match=f"backend='aot_{backend.name}'"):
        out.sum().backward()
    assert "inference-only" in {decision.code for decision in reports[0].decisions}


class TestShapes:
    def test_each_shape_is_compiled_once(self, fake_device, reports):
        model = perceptron()
        run = torch.compile(model, backend=aot_torchxla_trace_once, dynamic=True)
        for n in (3, 5, 3, 5, 7):
            x = torch.randn(n, 4)
            torch.testing.assert_close(run(x), model(x))
        assert len(reports) == 1
        assert fake_device.compilations == 3
        assert activity(*reports).xla_compilations == 3

    def test_recompilations_are_reported_and_warned_of_once(self, fake_device, reports, caplog):
        run = torch.compile(lambda x: x.sin() + 1, backend=aot_torchxla_trace_once, dynamic=True)
        with caplog.at_level(logging.WARNING, "aot_xla"), torch.no_grad():
            for n in range(2, WARN_AFTER + 6):
                run(torch.ones(n))
        assert [record.name for record in caplog.records] == ["aot_xla.recompilation"]
        assert "Pad inputs" in caplog.text
        codes = [decision.code for decision in reports[0].decisions]
        assert codes == ["new-shapes"] * WARN_AFTER
        assert activity(*reports).xla_compilations == WARN_AFTER + 4

    def test_few_shapes_are_no_warning(self, fake_device, caplog):
        run = torch.compile(lambda x: x.sin() + 1, backend=aot_torchxla_trace_once, dynamic=True)
        with caplog.at_level(logging.WARNING, "aot_xla"), torch.no_grad():
            for _ in range(5):
                for n in range(2, WARN_AFTER + 2):
                    run(torch.ones(n))
        assert caplog.records == []

    def test_numbers_are_part_of_what_is_traced(self, fake_device):
        run = torch.compile(lambda x, n: x * n, backend=aot_torchxla_trace_once, dynamic=True)
        with torch.no_grad():
            assert [run(torch.ones(2), n).tolist() for n in (3, 5, 3)] == [[3, 3], [5, 5], [3, 3]]


class TestWhatCannotBeTraced:
    def test_control_flow_runs_on_the_cpu_at_every_call(self, fake_device, reports):
        def model(x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 3, (x,)) + 1

        run = torch.compile(model, backend=aot_torchxla_trace_once, fullgraph=True)
        with torch.no_grad():
            for x in (torch.ones(3), -torch.ones(3)):
                torch.testing.assert_close(run(x), (x.sin() if x.sum() > 0 else x * 3) + 1)
        assert fake_device.compilations == 0
        assert [decision.code for decision in reports[0].decisions] == ["untraceable"]
        assert "cond" in reports[0].decisions[0].detail

    def test_a_size_that_depends_on_data(self, fake_device, reports):
        run = torch.compile(lambda x: x.nonzero(), backend=aot_torchxla_trace_once)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
            for x in (torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0])):
                assert torch.equal(run(x), x.nonzero())
        assert "nonzero" in reports[0].decisions[0].detail

    def test_an_operator_of_another_library(self, fake_device, reports):
        @torch.library.custom_op("aot_xla_tests::halve", mutates_args=())
        def halve(x: torch.Tensor) -> torch.Tensor:
            return x / 2

        halve.register_fake(torch.empty_like)
        with torch.no_grad():
            assert torch.compile(lambda x: halve(x) + 1, backend=aot_torchxla_trace_once)(
                torch.ones(2)
            ).tolist() == [
                1.5,
                1.5,
            ]
        assert "aot_xla_tests.halve" in reports[0].decisions[0].detail


@pytest.mark.parametrize("backend", TRAINING + INFERENCE, **by_name)
def test_without_torch_xla_compiling_says_what_to_install(backend, monkeypatch):
    def absent(name):
        raise MissingTorchXlaError("absent.")

    monkeypatch.setattr("aot_xla._compat.require_fitting_pair", lambda: absent("torch_xla"))
    from aot_xla import _compat

    _compat.open_device.cache_clear()
    with pytest.raises(Exception, match=r"See errors/missing-torch-xla") as caught:
        torch.compile(perceptron(), backend=backend)(torch.ones(3, 4))
    assert isinstance(caught.value.inner_exception, MissingTorchXlaError)


def test_activities_are_sums_and_differences():
    assert Activity(xla_executions=5) - Activity(xla_executions=2) == Activity(xla_executions=3)
    assert activity() == Activity()


def test_public_names():
    assert all(getattr(aot_xla, name) is not None for name in aot_xla.__all__)
    assert set(aot_xla.__all__) <= set(dir(aot_xla))
    with pytest.raises(AttributeError, match="no attribute 'openxla'"):
        _ = aot_xla.openxla


@pytest.mark.parametrize("backend", TRAINING + INFERENCE, **by_name)
def test_infos_describe_the_backends(backend):
    from aot_xla import info

    described = getattr(info, backend.name.upper())
    assert (described.name, described.tags) == (backend.name, backend.tags)
    assert described.target == f"aot_xla.backends:{backend.name}"
