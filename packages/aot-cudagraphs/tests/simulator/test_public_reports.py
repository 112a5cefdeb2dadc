"""What people have reported of CUDA graphs, shown without a GPU: one test a report.

Each test shows the hazard as it happens on a device, or that the simulator names it where a device is silent. What a
backend has to do about it is tested with the backend.
"""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from aot_cudagraphs import CaptureRefusedError, FreedMemoryError
from aot_cudagraphs.simulator import SimulatedEngine, SimulatedPool, as_host, held_bytes

engine = SimulatedEngine()


def record(function, *inputs, pool=None):
    return engine.record(lambda boxed: function(*boxed), list(inputs), pool or SimulatedPool())


def refused(function, *inputs):
    with pytest.raises(CaptureRefusedError) as caught:
        record(function, *inputs)
    return caught.value


def test_pytorch_169545_gradients_handed_out_are_overwritten_by_the_next_replay():
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    backward = record(lambda x: torch.autograd.grad((weight * x).sum(), weight), x)
    backward.replay()
    weight.grad = backward.outputs[0]
    assert weight.grad.tolist() == [1, 1, 1]
    x.fill_(9)
    backward.replay()
    assert weight.grad.tolist() == [9, 9, 9], "the static buffer itself was handed out"


def test_pytorch_181723_accumulating_into_a_static_gradient_counts_twice():
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    backward = record(lambda x: torch.autograd.grad((weight * x).sum(), weight), x)
    expected = torch.zeros(3)
    for step in range(2):
        backward.replay()
        expected += x
        gradient = backward.outputs[0]
        if step == 0:
            weight.grad = gradient
        else:
            weight.grad += gradient
    # 1 + 1 by luck: the second replay has put 1 where the first one's 1 lay. With other values it shows.
    assert weight.grad.tolist() == expected.tolist()
    weight.grad, x[:] = None, torch.tensor([1.0, 2.0, 3.0])
    backward.replay()
    weight.grad = backward.outputs[0]
    x[:] = torch.tensor([10.0, 10.0, 10.0])
    backward.replay()
    weight.grad += backward.outputs[0]
    assert weight.grad.tolist() == [20, 20, 20], "eager: [11, 12, 13]"


@pytest.mark.parametrize("number", ["pytorch 160281", "pytorch 152887", "pytorch 122192"])
def test_an_output_fed_back_is_overwritten_before_it_is_read(number):
    """``f(f(x))``: the static output is copied into the static input, and both belong to one recording."""
    static = torch.zeros(3)
    recording = record(lambda x: x + 1, static)

    def call(x):
        static.copy_(x)
        recording.replay()
        return recording.outputs[0]

    first = call(torch.zeros(3))
    second = call(first)
    assert second.tolist() == [2, 2, 2]
    assert first is second, "who kept the first result has the second one"


def test_pytorch_84614_dropout_draws_anew_at_each_replay():
    x = torch.ones(1000)
    recording = record(lambda x: torch.nn.functional.dropout(x, 0.5), x)
    masks = []
    for _ in range(3):
        recording.replay()
        masks.append(recording.outputs[0] != 0)
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[1], masks[2])
    assert all(400 < mask.sum() < 600 for mask in masks)


def test_pytorch_162504_checkpoint_restores_random_state_on_the_host():
    weight = torch.ones(4, requires_grad=True)

    def step(x, keep):
        def inner(x):
            return torch.nn.functional.dropout(x * weight, 0.5)

        result = checkpoint(inner, x, use_reentrant=False, preserve_rng_state=keep)
        return torch.autograd.grad(result.sum(), weight)

    error = refused(lambda x: step(x, True), torch.ones(4))
    assert error.refusal.code == "host-random-state"
    record(lambda x: step(x, False), torch.ones(4))


def test_pytorch_119241_one_scalar_in_host_memory():
    x, scale = torch.ones(3), as_host(torch.tensor(3.0))
    recording = record(lambda x, scale: (x + 1) * scale, x, scale)
    scale.fill_(100.0)
    recording.replay()
    assert recording.outputs[0].tolist() == [6, 6, 6], "captured, with the number of then"


def test_pytorch_123177_a_capture_in_another_thread():
    found = []

    def other():
        try:
            engine.record(lambda boxed: torch.ones(3), [], SimulatedPool())
        except CaptureRefusedError as error:
            found.append(str(error))

    def function(x):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return x * 2

    record(function, torch.ones(3))
    assert len(found) == 1 and "another capture is under way" in found[0]


def test_pytorch_104095_memory_goes_with_the_model():
    gc.collect()
    held = held_bytes()
    model = torch.nn.Linear(256, 256)
    recording = record(lambda x: model(x), torch.ones(64, 256))
    assert held_bytes() > held
    del recording
    assert held_bytes() == held


@pytest.mark.parametrize("number", ["pytorch PR 180395", "pytorch PR 190308"])
def test_a_failed_capture_leaks_nothing(number):
    gc.collect()
    held, pool, x = held_bytes(), SimulatedPool(), torch.ones(300_000)
    for _ in range(3):
        refused_twice = refused(lambda x: (x * 2).sum().item(), x)
        assert refused_twice.refusal.code == "host-read"
    del refused_twice
    gc.collect()
    assert held_bytes() == held and pool.allocated_bytes == 0
    record(lambda x: x * 2, x, pool=pool).replay()


def test_pytorch_154824_an_input_that_is_also_an_output():
    x = torch.ones(3)
    recording = record(lambda x: (x, x * 2), x)
    recording.replay()
    assert recording.outputs[0] is x
    x.fill_(4)
    recording.replay()
    assert [output.tolist() for output in recording.outputs] == [[4, 4, 4], [8, 8, 8]]


def test_pytorch_121861_a_written_input_is_written_by_each_replay():
    x = torch.zeros(3)
    recording = record(lambda x: x.add_(1), x)
    for _ in range(3):
        recording.replay()
    assert x.tolist() == [3, 3, 3]


def test_pytorch_103985_a_cache_that_is_written_in_place():
    cache, position, value = torch.zeros(5, 2), torch.tensor([0]), torch.ones(1, 2)

    def function(cache, position, value):
        cache.index_copy_(0, position, value)
        return cache.sum(0)

    recording = record(function, cache, position, value)
    for step in range(3):
        position.fill_(step)
        value.fill_(step + 1)
        recording.replay()
    assert cache[:, 0].tolist() == [1, 2, 3, 0, 0]
    assert recording.outputs[0].tolist() == [6, 6]


def test_vllm_pr_53915_a_moved_input():
    weights = {"kv": torch.ones(3)}
    recording = record(lambda: weights["kv"] * 2)
    weights["kv"] = torch.full((3,), 50.0)
    with pytest.raises(FreedMemoryError, match="has been freed"):
        recording.replay()


def test_lightning_thunder_727_item_in_a_captured_region():
    error = refused(lambda x: x * x.sum().item(), torch.ones(3))
    assert (error.refusal.op, error.refusal.code) == ("aten._local_scalar_dense.default", "host-read")
    assert error.source.startswith("test_public_reports.py:")


@pytest.mark.parametrize("number", ["lightning-thunder 1533", "TransformerEngine 2543"])
def test_one_pool_for_many_graphs_holds_less_than_one_each(number):
    x = torch.ones(4096)

    def layers(x):
        for _ in range(4):
            x = (x * 2).tanh()
        return x

    shared = SimulatedPool()
    together = [record(layers, x, pool=shared) for _ in range(6)]
    apart = [SimulatedPool() for _ in range(6)]
    alone = [record(layers, x, pool=pool) for pool in apart]
    assert len(together) == len(alone)
    size = 4 * 4096
    # While a graph runs it holds three values: a layer's input, inner value and result. Five results are kept then.
    assert shared.peak_bytes == (5 + 3) * size
    assert sum(pool.peak_bytes for pool in apart) == 6 * 3 * size


@pytest.mark.parametrize("number", ["Megatron-LM 1279", "Megatron-LM 422"])
def test_forwards_and_backwards_replayed_in_another_order_than_recorded(number):
    """1F1B runs the second micro-batch's forward before the first one's backward, which was recorded before it."""
    pool, x, weight = SimulatedPool(), torch.ones(3), torch.full((3,), 2.0)

    def backward(boxed):
        gradient = boxed.pop() * 3
        return gradient + 1

    def record_micro_batch():
        forward = engine.record(lambda boxed: (boxed[0] * weight).exp(), [x], pool)
        activations = list(forward.outputs)
        forward.outputs.clear()
        backward_ = engine.record(backward, activations, pool)
        gradient = engine.unowned(backward_.outputs[0])
        # The optimizer is done with it before the next micro-batch, and so its memory is let go.
        backward_.outputs.clear()
        return forward, backward_, gradient

    forward_1, backward_1, gradient = record_micro_batch()
    forward_2, backward_2, _ = record_micro_batch()
    expected = (x * weight).exp() * 3 + 1
    forward_1.replay()
    backward_1.replay()
    assert torch.equal(gradient, expected)
    for recording in (forward_1, forward_2, backward_2, backward_1):
        recording.replay()
    assert not torch.isclose(gradient, expected).any(), (
        "the activation's place was taken by the second gradient"
    )
