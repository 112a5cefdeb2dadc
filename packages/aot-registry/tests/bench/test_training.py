"""Runs that take turns do not see each other, and each is what a plain training loop would be."""

import copy
import random

import pytest
import torch
from torch import nn

from aot_registry.bench.rng import isolated_rng, seed_step
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads.workload import Workload


def eager(model):
    return model


def test_interleaved_runs_equal_one_that_runs_alone(workload):
    alone = TrainingRun(workload, eager, seed=1)
    alone.take_steps(12)
    first, second = TrainingRun(workload, eager, seed=1), TrainingRun(workload, eager, seed=1)
    for count in (2, 1, 4, 5):
        first.take_steps(count)
        torch.rand(7)
        second.take_steps(count)
    assert first.losses == alone.losses
    assert second.losses == alone.losses


def test_dropout_draws_anew_each_step_and_by_seed(workload):
    class Mask(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.masks = []

        def forward(self, x):
            mask = nn.functional.dropout(torch.ones(200), 0.5)
            self.masks.append(mask)
            return self.scale * mask.sum()

    masked = Workload("mask", Mask(), [(torch.zeros(1), 0.0)], lambda output, target: output, torch.optim.SGD)
    runs = [TrainingRun(masked, eager, seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.take_steps(2)
    one, same, other = (run.model.masks for run in runs)
    assert not torch.equal(one[0], one[1])
    assert torch.equal(one[1], same[1])
    assert not torch.equal(one[0], other[0])


def test_a_contender_that_draws_more_still_gets_eagers_numbers_in_the_next_step(workload):
    def greedy(model):
        def call(x):
            # The model's own draws come first, so that only later ones could be disturbed.
            output = model(x)
            torch.rand(3)
            random.random()
            return output

        return call

    plain, drawing = TrainingRun(workload, eager, seed=1), TrainingRun(workload, greedy, seed=1)
    plain.take_steps(5)
    drawing.take_steps(5)
    assert drawing.losses == plain.losses


def test_random_state_of_the_process_is_left_alone(workload):
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    TrainingRun(workload, eager, seed=1).take_steps(2)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state


def test_random_state_is_put_back_after_an_error():
    def fail():
        with isolated_rng(1):
            seed_step(1, 2)
            raise KeyError

    torch_state, python_state = torch.get_rng_state(), random.getstate()
    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state


def test_the_workloads_own_model_is_not_trained(workload):
    before = copy.deepcopy(workload.model.state_dict())
    TrainingRun(workload, eager, seed=1).take_steps(3)
    for name, value in workload.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_losses_equal_those_of_a_loop_in_float64(workload):
    model = copy.deepcopy(workload.model).double().eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    expected = []
    for step in range(8):
        inputs, target = workload.batches[step % 6]
        loss = (model(inputs.double()) - target.double()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    workload.model.eval()
    run = TrainingRun(workload, eager, seed=1)
    run.take_steps(3)
    run.take_steps(5)
    assert run.losses == pytest.approx(expected, rel=1e-5)


def test_state_bytes_counts_shared_storage_once(workload):
    run = TrainingRun(workload, eager, seed=1)
    run.take_steps(1)
    weights = 12 * 5 + 12 + 12 + 1
    # AdamW keeps two tensors like each parameter, and a step counter of 4 bytes for each of the four.
    batches = 6 * 16 * 5  # the batches are views of one tensor
    expected = 4 * (3 * weights + 4 + batches + 16)
    assert run.state_bytes() == expected


def test_frozen_parameters_are_not_handed_to_the_optimizer(workload):
    workload.model[0].weight.requires_grad_(False)
    run = TrainingRun(workload, eager, seed=1)
    run.take_steps(2)
    assert torch.equal(run.model[0].weight, workload.model[0].weight)
    assert not torch.equal(run.model[3].weight, workload.model[3].weight)


def test_graphs_are_counted_per_run(workload):
    torch.compiler.reset()

    def compiled(model):
        return torch.compile(model, backend="eager")

    first, second, plain = (TrainingRun(workload, how, seed=1) for how in (compiled, compiled, eager))
    for run in (first, second, plain, first):
        run.take_steps(2)
    assert first.graphs == 1
    # Same code, same backend, another model: Dynamo is free to use the first one's graph.
    assert second.graphs <= 1
    assert plain.graphs == 0
    assert first.losses[:2] == second.losses == plain.losses
    torch.compiler.reset()
