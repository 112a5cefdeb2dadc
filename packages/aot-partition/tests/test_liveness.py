"""Simulated memory against the allocator's own events, to the byte."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from memory_cases import Convolutional, Step, Transformer, Views, capture
from torch import nn

from aot_partition.extract import Assignment, extract
from aot_partition.memory.kernels import KernelProfile
from aot_partition.memory.liveness import simulate_step
from aot_partition.memory.measure import measure_step, trace_allocations
from aot_partition.mincut.eager_rules import saved_for_eager

CASES = {
    "transformer": lambda: (Transformer(), torch.randn(4, 8, 32, requires_grad=True)),
    "dropout": lambda: (Transformer(dropout=0.1), torch.randn(4, 8, 32)),
    "convolutional": lambda: (Convolutional(), torch.randn(2, 3, 16, 16)),
    "views": lambda: (Views(), torch.randn(16, 16)),
    "linear": lambda: (nn.Linear(8, 8), torch.randn(4, 8)),
}
PARTITIONS = {"default": default_partition, "min-cut": min_cut_rematerialization_partition}


def halves(step: Step, partition):
    return partition(step.joint, step.inputs, num_fwd_outputs=step.num_fwd_outputs)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", CASES)
def test_every_node_is_exact(name, partition):
    step = capture(*CASES[name]())
    forward, backward = halves(step, PARTITIONS[partition])
    profile = KernelProfile()
    profile.measure((*forward.graph.nodes, *backward.graph.nodes))
    simulated = simulate_step(forward, backward, step.num_fwd_outputs, scratch=profile.scratch)
    measured = measure_step(forward, backward, step.inputs, step.num_fwd_outputs)
    check_nodes(simulated, measured)
    for field in ("static_bytes", "saved_bytes", "output_bytes", "tangent_bytes", "gradient_bytes"):
        assert getattr(simulated, field) == getattr(measured, field), field
    assert measured.peak == pytest.approx(simulated.peak, rel=0.03)


def check_nodes(simulated, measured):
    for one, other in zip(
        (*simulated.forward, *simulated.backward), (*measured.forward, *measured.backward), strict=True
    ):
        assert (one.name, one.during, one.live) == (other.name, other.during, other.live)


class Recurrence(nn.Module):
    """Computes the same gate in each of three steps, of which one is left."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32))

    def forward(self, x):
        h = x
        for _ in range(3):
            h = h * self.weight.sigmoid() + x
        return h.tanh()


def test_a_view_of_a_merged_duplicate_makes_nothing():
    step = capture(Recurrence(), torch.randn(16, 32))
    joint = step.read()
    assert joint.merged_storages
    views = [i for i, node in enumerate(joint.nodes) if node.target is torch.ops.aten.detach.default]
    assert all(joint.is_alias[i] for i in views)
    forward, backward = extract(joint, Assignment(saved_for_eager(joint)))
    simulated = simulate_step(forward, backward, step.num_fwd_outputs)
    check_nodes(simulated, measure_step(forward, backward, step.inputs, step.num_fwd_outputs))


def test_symbolic_sizes_count_at_their_hints():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    fixed = capture(model, torch.randn(4, 8))
    dynamic = capture(model, torch.randn(4, 8), dynamic=True)
    one, other = (
        simulate_step(*halves(step, default_partition), step.num_fwd_outputs) for step in (fixed, dynamic)
    )
    assert one.peak == other.peak


def test_scratch_is_counted_on_top():
    step = capture(*CASES["linear"]())
    forward, backward = halves(step, default_partition)
    without = simulate_step(forward, backward, step.num_fwd_outputs)
    with_scratch = simulate_step(forward, backward, step.num_fwd_outputs, scratch=lambda node: 1000)
    assert with_scratch.peak == without.peak + 1000
    assert with_scratch.peak_without_scratch == without.peak


def test_a_value_that_is_computed_again_has_memory_of_its_own():
    # The copy in the backward carries the fake tensor of the forward's node, which is also saved.
    forward = torch.fx.Graph()
    x = forward.placeholder("primals_1")
    y = forward.call_function(torch.ops.aten.exp.default, (x,))
    for node in (x, y):
        node.meta["val"] = torch.empty(4, device="meta")
    forward.output((y, y))
    backward = torch.fx.Graph()
    saved = backward.placeholder(y.name)
    given = backward.placeholder("primals_1")
    again = backward.call_function(torch.ops.aten.exp.default, (given,))
    total = backward.call_function(torch.ops.aten.add.Tensor, (saved, again))
    for node, like in ((saved, y), (given, x), (again, y)):
        node.meta["val"] = like.meta["val"]
    total.meta["val"] = torch.empty(4, device="meta")
    backward.output((total,))
    modules = (torch.fx.GraphModule(nn.Module(), graph) for graph in (forward, backward))
    memory = simulate_step(*modules, 1)
    assert [node.during for node in memory.backward] == [32, 48]


def test_trace_allocations_sees_what_comes_and_goes():
    with trace_allocations() as trace:
        kept = torch.empty(100, dtype=torch.uint8)
        trace.mark()
        passing = torch.empty(1000, dtype=torch.uint8)
        del passing
    del kept
    assert trace.sections == [[0, 100], [100, 1100, 100]]
    assert trace.peak == 1100
