"""Peak memory against sizes counted by hand."""

import os

import pytest
import torch
from torch import nn

from aot_registry.bench.memory import measure_peak_bytes, peak_increase, peak_of_events
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads.workload import Workload

CPU = torch.device("cpu")
N = 1 << 18
TENSOR = 4 * N
SMALL = 256  # bytes: the loss, its gradient


class Product(nn.Module):
    """``weight * x``, then ``exp`` if ``curved``."""

    def __init__(self, curved):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(N))
        self.curved = curved

    def forward(self, x):
        product = self.weight * x
        if self.curved:
            return product.exp()
        return product


def product_workload(curved):
    return Workload(
        "product",
        Product(curved),
        [(torch.full((N,), 1e-3), torch.zeros(()))],
        lambda output, target: output.sum() - target,
        lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    )


def test_peak_is_the_most_that_lived_at_once():
    def action():
        first = torch.empty(1000)
        second = torch.empty(2000)
        del first
        third = torch.empty(500)
        del second, third

    assert peak_increase(action, CPU) == 4 * (1000 + 2000)


def test_what_is_freed_before_the_next_is_not_added_up():
    def action():
        for _ in range(5):
            torch.empty(1000)

    assert peak_increase(action, CPU) == 4 * 1000


def test_what_lived_before_is_not_counted():
    before = torch.empty(10_000)
    assert peak_increase(lambda: before.add_(1).new_empty(10), CPU) in (40, 44)  # the 1 may become a tensor


def test_nothing_allocated():
    assert peak_increase(lambda: None, CPU) == 0


def test_repeated_measurements_agree():
    peaks = {peak_increase(lambda: torch.empty(3000).exp(), CPU) for _ in range(4)}
    assert peaks == {4 * 6000}


def test_a_failing_action_raises_and_leaves_the_profiler_usable():
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        peak_increase(fail, CPU)
    assert peak_increase(lambda: torch.empty(10), CPU) == 40


def test_the_environment_is_put_back():
    before = dict(os.environ)
    peak_increase(lambda: None, CPU)
    assert dict(os.environ) == before


def event(total, change, time, device=0, name="[memory]"):
    arguments = {"Total Allocated": total, "Bytes": change, "Device Type": device}
    return {"name": name, "ts": time, "args": arguments}


def test_events_are_read_by_their_totals():
    events = [
        # Allocated before profiling began: 100. Written out of order, as two threads would.
        event(130, 20, 2.0),
        event(110, 10, 1.0),
        event(90, -40, 3.0),
        event(9000, 9000, 2.5, device=1),
        event(9000, 9000, 2.5, name="aten::mm"),
        {"name": "process_name", "ph": "M"},
    ]
    assert peak_of_events(events) == 30


def test_events_that_only_free():
    assert peak_of_events([event(60, -40, 1.0), event(50, -10, 2.0)]) == 0


def test_a_second_measurement_agrees_with_the_first():
    # The gradients of the first measured step are known to the allocator's books when the second begins.
    run = TrainingRun(product_workload(True), lambda model: model, seed=0)
    run.take_steps(1)
    assert measure_peak_bytes(run) == measure_peak_bytes(run)


@pytest.mark.parametrize(
    ("curved", "tensors"),
    [
        # weight and x, and either the product (forward) or the weight's gradient (backward).
        (False, 3),
        # weight and x, and the product beside its exp; in the backward exp's result beside its gradient.
        (True, 4),
    ],
)
def test_training_step_by_hand(curved, tensors):
    run = TrainingRun(product_workload(curved), lambda model: model, seed=0)
    run.take_steps(2)
    peak = measure_peak_bytes(run)
    assert tensors * TENSOR <= peak <= tensors * TENSOR + SMALL


def test_compiled_code_is_seen_and_not_replaced_by_eager():
    calls = []

    def wasteful(graph, example_inputs):
        def call(*args):
            calls.append(None)
            torch.empty(5 * N)
            return graph.forward(*args)

        return call

    torch.compiler.reset()
    eager = TrainingRun(product_workload(True), lambda model: model, seed=0)
    compiled = TrainingRun(
        product_workload(True), lambda model: torch.compile(model, backend=wasteful), seed=0
    )
    peaks = []
    for run in (eager, compiled):
        run.take_steps(2)
        peaks.append(measure_peak_bytes(run))
    torch.compiler.reset()
    assert len(calls) == 3
    assert compiled.graphs == 1, "measuring must not recompile"
    assert 4 * TENSOR <= peaks[0] <= 4 * TENSOR + SMALL
    # The five are gone before the product is there.
    assert 7 * TENSOR <= peaks[1] <= 7 * TENSOR + SMALL


def test_autograd_of_a_compiled_step_is_seen():
    torch.compiler.reset()
    run = TrainingRun(product_workload(True), lambda model: torch.compile(model, backend="aot_eager"), seed=0)
    run.take_steps(2)
    peak = measure_peak_bytes(run)
    torch.compiler.reset()
    # One more than eager's: AOTAutograd makes the gradient that sum() expands contiguous.
    assert 5 * TENSOR <= peak <= 5 * TENSOR + SMALL


def test_the_step_measured_is_not_in_the_loss_curve(workload):
    run = TrainingRun(workload, lambda model: model, seed=0)
    run.take_steps(2)
    measure_peak_bytes(run)
    assert len(run.losses) == 2
