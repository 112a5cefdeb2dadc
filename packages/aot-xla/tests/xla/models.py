"""Models to train, each for something that a bridge to XLA may get wrong."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 20


@dataclasses.dataclass
class Case:
    """A model, its data, and how its output becomes a loss.

    Args:
        make: Makes the model.
        batch: Makes the inputs of a step, from its number and a generator.
        loss: From the output to a number.
        shapes: How many sets of shapes the batches have.
        random: Whether it draws random numbers: then another device draws others.
        dtype: Of parameters and of floating inputs.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], tuple[torch.Tensor, ...]]
    loss: Callable[[Any], torch.Tensor] = lambda out: out.square().mean()
    shapes: int = 1
    random: bool = False
    dtype: torch.dtype = torch.float64


def randn(*shape: int) -> Callable[[int, torch.Generator], tuple[torch.Tensor, ...]]:
    return lambda step, generator: (torch.randn(shape, generator=generator),)


def tokens(*shape: int) -> Callable[[int, torch.Generator], tuple[torch.Tensor, ...]]:
    return lambda step, generator: (torch.randint(0, 16, shape, generator=generator),)


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 2, width // 2).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.mlp(self.norm_2(x)))


class Gpt(nn.Module):
    """Token and position embeddings, two blocks, and a head tied to the embedding."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(16, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList(Block(8, dropout) for _ in range(2))
        self.head = nn.Linear(8, 16, bias=False)

    def tie(self):
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Rnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.RNNCell(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 5)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.out(state)


class TiedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 4), nn.Linear(4, 4)

    def tie(self):
        self.decode.weight = self.encode.weight

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x))) - x


class MutatedBuffer(nn.Module):
    """The buffer is saved for the backward as it is after the write: torch's openxla takes the first call's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x.detach().sum(0))
        return self.weight * self.total + x


class DuplicateInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Bilinear(3, 3, 2)

    def pair(self, a, b):
        return self.scale(a, b) * a.sum(-1, keepdim=True)

    def forward(self, x):
        return self.pair(x, x)


class InPlace(nn.Module):
    """Activations, and a slice of one, are written in place; a counter buffer too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        hidden = self.first(x).mul_(2)
        hidden[:, :2] += 1
        hidden[:, 3].zero_()
        return self.second(F.relu_(hidden)).div_(self.calls)


class IntegerOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x):
        scores = self.body(x)
        return scores, scores.argmax(-1), scores > 0, x.shape[0]


class Digits(nn.Module):
    """The net of `aot bench digits-conv`, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        )

    def forward(self, images, labels):
        return F.cross_entropy(self.body(images), labels)


@functools.cache
def all_digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float64).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


def digits(step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    images, labels = all_digits()
    chosen = torch.randint(0, len(labels), (16,), generator=generator)
    return images[chosen], labels[chosen]


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 3)
    )


CASES = {
    "mlp": Case(lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), randn(5, 4)),
    "mlp in float32": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), randn(5, 4), dtype=torch.float32
    ),
    "conv and batch norm": Case(convolution, randn(6, 2, 5, 5)),
    "gpt": Case(lambda: Gpt(0.0), tokens(3, 6), loss=lambda out: out),
    "gpt with dropout": Case(lambda: Gpt(0.1), tokens(16, 6), loss=lambda out: out, random=True),
    "rnn cell": Case(Rnn, randn(4, 5, 3)),
    "tied weights": Case(TiedWeights, randn(5, 4)),
    "mutated buffer": Case(MutatedBuffer, lambda step, g: (torch.rand(2, 3, generator=g) / 8,)),
    "duplicate inputs": Case(DuplicateInputs, randn(4, 3)),
    "in place": Case(InPlace, randn(5, 4)),
    "embedding": Case(
        lambda: nn.Sequential(nn.Embedding(16, 4), nn.Flatten(), nn.Linear(12, 2)), tokens(5, 3)
    ),
    "integer outputs": Case(
        IntegerOutputs,
        randn(5, 4),
        loss=lambda out: (out[0] * out[2]).square().sum() / out[3] + 0 * out[1].sum(),
    ),
    "dynamic batch": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)),
        lambda step, g: (torch.randn(3 + step % 4, 4, generator=g),),
        shapes=4,
    ),
    "digits-conv": Case(Digits, digits, loss=lambda out: out),
}


@dataclasses.dataclass
class Training:
    """One run: a copy of the model, and what came of it."""

    case: Case
    model: nn.Module
    run: Callable[..., Any]
    losses: list[float] = dataclasses.field(default_factory=list)

    def step(self) -> None:
        number = len(self.losses)
        device = next(self.model.parameters()).device
        generator = torch.Generator().manual_seed(number)
        inputs = [
            (x.to(self.case.dtype) if x.is_floating_point() else x).to(device)
            for x in self.case.batch(number, generator)
        ]
        if not hasattr(self, "optimizer"):
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.02, momentum=0.9)
        self.optimizer.zero_grad()
        loss = self.case.loss(self.run(*inputs))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def start(case: Case, device: torch.device, compile: Callable[[nn.Module], Any]) -> Training:  # noqa: A002
    torch.manual_seed(0)
    model = case.make().to(case.dtype).to(device)
    if hasattr(model, "tie"):
        # Moving a model to XLA makes each of its modules a parameter of its own.
        model.tie()
    return Training(case, model, compile(model))
