"""Twelve steps of training on the simulator: bit for bit what eager does, nothing copied that need not be."""

from __future__ import annotations

import gc

import models
import pytest
import torch
from training import (
    STEPS,
    assert_identical,
    compiled,
    eager_peak,
    next_token,
    regression,
    train,
    twin,
)

import aot_core.debug
import aot_cudagraphs
from aot_cudagraphs.lanes import Lanes, all_lanes
from aot_cudagraphs.simulator import held_bytes


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 32)


def tokens(count: int = 4, length: int = 17) -> torch.Tensor:
    return torch.randint(0, 48, (count, length))


# Name: model, batches, loss, steps accumulated, whether eager's dropout draws in another order than AOTAutograd's.
RUNS = {
    "mlp": (models.mlp, lambda: [rows(16) for _ in range(STEPS)], regression, 1, False),
    "dropout-mlp": (lambda: models.mlp(0.2), lambda: [rows(16) for _ in range(STEPS)], regression, 1, True),
    "gpt": (models.GPT, lambda: [tokens() for _ in range(STEPS)], next_token, 1, False),
    "gpt-dropout": (lambda: models.GPT(0.2), lambda: [tokens() for _ in range(STEPS)], next_token, 1, True),
    "conv-bn": (
        models.conv_net,
        lambda: [torch.randn(4, 3, 8, 8) for _ in range(STEPS)],
        regression,
        1,
        False,
    ),
    "accumulation": (models.mlp, lambda: [rows(16) for _ in range(STEPS)], regression, 4, False),
    "six-shapes": (models.mlp, lambda: [rows(3 + i % 6) for i in range(2 * STEPS)], regression, 1, False),
}


def made(name):
    factory, data, loss_of, accumulate, reordered = RUNS[name]
    model, batches = factory(), data()
    with torch.no_grad():
        model(batches[0] if name[:3] != "gpt" else batches[0][:, :-1])  # lazy layers take their sizes
    return model, batches, loss_of, accumulate, reordered


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    torch._dynamo.reset()
    gc.collect()
    assert aot_cudagraphs.held_bytes() == 0
    gc.collect()
    assert held_bytes() == 0


@pytest.mark.parametrize("outputs", ["clone", "pool"])
@pytest.mark.parametrize("name", RUNS)
def test_twelve_steps_are_eagers(name, outputs):
    model, batches, loss_of, accumulate, reordered = made(name)
    reference = twin(model)
    expected_by = compiled(reference, aot_core.debug.aot_core_eager) if reordered else reference
    expected = train(reference, expected_by, batches, loss_of, accumulate)
    function = compiled(model, outputs=outputs, dynamic=False)
    assert_identical(train(model, function, batches, loss_of, accumulate), expected)
    islands = [island for graph in aot_cudagraphs.captured_graphs() for island in graph.islands]
    assert islands and all(island.num_graphs > 0 for island in islands)
    replays = sum(recording.replays for island in islands for recording in island.recordings)
    assert replays >= len(batches)
    aot_cudagraphs.reset()
    assert aot_cudagraphs.held_bytes() == 0


@pytest.mark.parametrize("warmup", [0, 2, *(pytest.param(n, marks=pytest.mark.sweep) for n in (1, 5))])
def test_the_number_of_warm_up_calls_changes_nothing(warmup):
    model, batches, loss_of, *_ = made("gpt-dropout")
    reference = twin(model)
    expected = train(reference, compiled(reference, aot_core.debug.aot_core_eager), batches, loss_of)
    assert_identical(train(model, compiled(model, warmup=warmup), batches, loss_of), expected)


@pytest.mark.parametrize("name", ["mlp", "gpt", "conv-bn", "six-shapes"])
def test_no_parameter_is_copied(name):
    model, batches, loss_of, accumulate, _ = made(name)
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    function = compiled(model, dynamic=False)
    copied: set[int] = set()
    train(model, function, batches, loss_of, accumulate)
    for graph in aot_cudagraphs.captured_graphs():
        for island in graph.islands:
            for inputs in island.input_plans:
                copied |= set(inputs.stand_ins)
                # What is read in place holds all that is a parameter.
                assert not parameters & {one.tensor.data_ptr() for one in inputs.stand_ins.values()}
                if "forward" in graph.name:
                    assert parameters <= set(inputs.in_place.values())
                    assert len(inputs.stand_ins) <= 1  # the batch


@pytest.mark.parametrize("name", ["mlp", "dropout-mlp", "gpt", "gpt-dropout", "conv-bn"])
def test_forward_and_backward_take_no_more_memory_than_eager(name):
    model, batches, loss_of, *_ = made(name)
    peak = eager_peak(twin(model), batches[0], loss_of)

    # As in the eager step, only what the model computes: the loss is inside.
    def step(batch):
        return loss_of(model, batch)

    function = compiled(step)
    for batch in batches:
        function(batch).backward()
    pools = [lane.pool for lanes in all_lanes() for lane in lanes]
    assert len(pools) == 1
    print(f"{name}: pool {pools[0].peak_bytes}, eager {peak}, ratio {pools[0].peak_bytes / peak:.3f}")
    assert pools[0].peak_bytes <= 1.05 * peak


def test_decoding_with_a_cache_that_is_written_in_place():
    decoder = models.Decoder()
    reference = twin(decoder)
    inputs = [torch.randn(16) for _ in range(STEPS)]
    with torch.no_grad():
        expected = [reference(x).clone() for x in inputs]
        function = compiled(decoder)
        got = [function(x) for x in inputs]
    assert_identical(got + list(decoder.buffers()), expected + list(reference.buffers()))
    (graph,) = aot_cudagraphs.captured_graphs()
    (plan,) = graph.islands[0].input_plans
    assert decoder.keys.data_ptr() in plan.in_place.values()
    assert plan.written_back == ()


def test_a_step_that_begins_before_the_last_ones_backward():
    """Two, three, four forwards first: each in memory of its own, as in pipelines."""
    model, batches, *_ = made("mlp")
    reference = twin(model)
    function = compiled(model)
    for depth in (1, 2, 3, 4, 2, 1, 4):
        losses = [regression(function, batch) for batch in batches[:depth]]
        expected = [regression(reference, batch) for batch in batches[:depth]]
        for loss in losses:
            loss.backward()
        for loss in expected:
            loss.backward()
        assert_identical([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])
    assert {len(list(lanes)) for lanes in all_lanes() if isinstance(lanes, Lanes)} == {4}


def test_a_backward_that_keeps_its_graph():
    model, batches, *_ = made("mlp")
    reference = twin(model)
    function = compiled(model)
    for batch in batches[:6]:
        for by in (function, reference):
            loss = regression(by, batch)
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
            loss.backward()
        assert_identical([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])


def test_memory_is_given_back_with_the_model():
    model, batches, loss_of, *_ = made("mlp")
    function = compiled(model)
    train(model, function, batches, loss_of)
    assert aot_cudagraphs.held_bytes() > 0 and held_bytes() > 0
    del function, model
    torch._dynamo.reset()
    gc.collect()
    assert aot_cudagraphs.held_bytes() == 0 and held_bytes() == 0


def test_a_reset_between_forward_and_backward():
    model, batches, *_ = made("mlp")
    reference = twin(model)
    function = compiled(model)
    for i, batch in enumerate(batches):
        loss = regression(function, batch)
        if i % 3 == 2:
            aot_cudagraphs.reset()
        loss.backward()
        regression(reference, batch).backward()
        assert_identical([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])
    del loss
    aot_cudagraphs.reset()
    assert aot_cudagraphs.held_bytes() == 0
