"""Whole training steps in one recording: forward, backward, optimizer."""

from __future__ import annotations

import copy

import pytest
import torch

from aot_cudagraphs.simulator import SimulatedEngine, SimulatedPool

engine = SimulatedEngine()


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 16)
        self.mix = torch.nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 11)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.mix(x, x, x, need_weights=False)[0])
        return self.head(x)


MODELS = {
    "MLP": (
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)),
        lambda: torch.randn(5, 8),
    ),
    "dropout": (
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4)),
        lambda: torch.randn(5, 8),
    ),
    "conv and batch norm": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        ),
        lambda: torch.randn(2, 3, 8, 8),
    ),
    "attention": (Attention, lambda: torch.randint(11, (2, 6))),
}
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.01, capturable=False, foreach=False),
}


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("name", MODELS)
def test_twelve_steps_are_eagers(name, seed):
    make_model, make_batch = MODELS[name]
    model = make_model()
    twin = copy.deepcopy(model)
    optimizer, other = (OPTIMIZERS["SGD"](each.parameters()) for each in (model, twin))
    batches = [make_batch() for _ in range(13)]
    static = batches[0].clone()
    # The optimizer makes its state in its first step, which is not what a recording should repeat.
    torch.manual_seed(seed)
    engine.warm_up(lambda boxed: step(model, optimizer, *boxed), [static])
    recording = engine.record(lambda boxed: [step(model, optimizer, *boxed)], [static], SimulatedPool())
    losses = []
    for batch in batches[1:]:
        static.copy_(batch)
        recording.replay()
        losses.append(recording.outputs[0].item())
    torch.manual_seed(seed)
    expected = [step(twin, other, batch).item() for batch in batches][1:]
    assert losses == expected
    for got, wanted in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(got, wanted)


def test_an_optimizer_that_counts_on_the_host_is_recorded_with_its_count():
    """What CUDA does too: Adam needs capturable=True, or its step count stays what it was."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight], 0.1, foreach=False, capturable=False)

    def train(boxed):
        optimizer.zero_grad(set_to_none=True)
        weight.square().sum().backward()
        optimizer.step()

    train([])
    optimizer.state[weight]["step"] = optimizer.state[weight]["step"].clone()
    with pytest.raises(RuntimeError, match="can't be captured"):
        # The count lies on the CPU, which here is the device: reading it is a read of the device.
        engine.record(train, [], SimulatedPool())


def test_gradients_accumulate_in_place():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)
    x = torch.ones(3)
    recording = engine.record(lambda boxed: (weight * boxed[0]).sum().backward(), [x], SimulatedPool())
    assert weight.grad.tolist() == [0, 0, 0]
    for value in (1, 2, 3):
        x.fill_(value)
        recording.replay()
    assert weight.grad.tolist() == [6, 6, 6]
    assert weight.tolist() == [1, 1, 1]


def test_forward_and_backward_in_two_recordings_share_a_pool(seed):
    """Each recording takes what the other has given back, and the peak is below that of two pools."""

    def build(pools):
        torch.manual_seed(seed)
        weights = [torch.randn(32, 32, requires_grad=True) for _ in range(4)]
        x, tangent = torch.randn(16, 32), torch.ones(16, 32)

        def forward(boxed):
            values = [boxed.pop()]
            for weight in weights:
                values.append((values[-1] @ weight.detach()).tanh())
            return values[1:]

        def backward(boxed):
            gradient = boxed.pop()
            gradients = []
            for weight in reversed(weights):
                value = boxed.pop()
                gradient = gradient * (1 - value * value)
                before = boxed[-1] if boxed else x
                gradients.append(before.t() @ gradient)
                gradient = gradient @ weight.detach().t()
            return gradients

        first = engine.record(forward, [x], pools[0])
        first.replay()
        saved = list(first.outputs)
        result = first.outputs[-1].clone()
        first.outputs.clear()
        boxed = [*saved, tangent]
        saved.clear()
        second = engine.record(backward, boxed, pools[-1])
        second.replay()
        value = x
        for weight in weights:
            value = (value @ weight).tanh()
        expected = torch.autograd.grad(value, weights, tangent)
        assert torch.equal(result, value)
        for got, wanted in zip(second.outputs, reversed(expected), strict=True):
            torch.testing.assert_close(got, wanted)
        return sum(pool.peak_bytes for pool in pools)

    shared, apart = build([SimulatedPool()]), build([SimulatedPool(), SimulatedPool()])
    assert shared < apart
