"""The launch-bound models of phase B: many small kernels each, so that launching them is what takes the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["WORKLOADS", "Workload"]


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is timed.

    Args:
        model: Makes the model.
        batches: Makes the inputs of one round, one list of tensors for each step.
        loss: Of what the model returns and its inputs; None for inference.
        accumulate: Backwards for each step of the optimizer.
        dynamic: What ``torch.compile(dynamic=...)`` gets.
        random: It draws random numbers, in an order that compilers may change.
        graphed: ``make_graphed_callables`` may be used: fixed shapes, no state of its own, no random branch.
        skipped: torch's ``cudagraphs`` skips it.
    """

    model: Callable[[], nn.Module]
    batches: Callable[[int], list[list[torch.Tensor]]]
    loss: Callable[[Any, list[torch.Tensor]], torch.Tensor] | None
    accumulate: int = 1
    dynamic: bool | None = None
    random: bool = False
    graphed: bool = False
    skipped: bool = False


class Scale:
    """Sizes: those to measure with, or small ones that show on a CPU that all runs."""

    small = False

    def __call__(self, large: int, small: int) -> int:
        return small if self.small else large


scale = Scale()


class Block(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (dim // 4) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = self._drop(scores.masked_fill(future, float("-inf")).softmax(-1))
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))
        return x + self._drop(self.down(F.gelu(self.up(self.norm2(x)))))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class GPT(nn.Module):
    def __init__(self, layers: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(512, dim), nn.Embedding(128, dim)
        self.blocks = nn.ModuleList(Block(dim, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 512, bias=False)

    def forward(self, tokens: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for i, block in enumerate(self.blocks):
            x = block(x)
            if rest and i == len(self.blocks) // 2:
                # What torch's backend skips a whole graph for: a number on the host, and a write by a mask.
                number, mask = rest
                x = x * number
                x = x.index_put([mask], torch.zeros((), device=x.device))
        return self.head(self.norm(x))


class Decoder(nn.Module):
    """Attention over caches that each call writes a row of, in several layers."""

    def __init__(self, layers: int, dim: int, length: int) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.register_buffer("keys", torch.zeros(layers, length, dim))
        self.register_buffer("values", torch.zeros(layers, length, dim))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.position.view(1)
        seen = torch.arange(self.keys.shape[1], device=x.device) <= self.position
        for i, (qkv, out) in enumerate(zip(self.qkv, self.out, strict=True)):
            q, k, v = qkv(x).chunk(3, -1)
            self.keys[i].index_copy_(0, row, k)
            self.values[i].index_copy_(0, row, v)
            scores = (q @ self.keys[i].T).masked_fill(~seen, float("-inf"))
            x = x + out(scores.softmax(-1) @ self.values[i])
        self.position.add_(1).remainder_(self.keys.shape[1])
        return x


def _mlp() -> nn.Module:
    layers = [part for _ in range(scale(64, 4)) for part in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers)


def _conv_net() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(scale(16, 2)):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def _gpt(dropout: float = 0.0) -> nn.Module:
    return GPT(scale(12, 2), scale(256, 32), dropout)


def _tokens(batch: int, length: int = 64) -> torch.Tensor:
    return torch.randint(0, 512, (batch, scale(length, 8)))


def _square(output: Any, inputs: list[torch.Tensor]) -> torch.Tensor:
    return output.square().mean()


def _next_token(output: Any, inputs: list[torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output[:, :-1].flatten(0, 1), inputs[0][:, 1:].flatten())


def _number_and_mask(steps: int) -> list[list[torch.Tensor]]:
    tokens = [_tokens(4) for _ in range(steps)]
    dim = scale(256, 32)
    return [[t, torch.tensor(1.0 + i / 8), torch.rand(*t.shape, dim) < 0.1] for i, t in enumerate(tokens)]


WORKLOADS = {
    "mlp-training": Workload(
        _mlp, lambda steps: [[torch.randn(64, 256)] for _ in range(steps)], _square, graphed=True
    ),
    "gpt-inference": Workload(_gpt, lambda steps: [[_tokens(1)] for _ in range(steps)], None, graphed=True),
    "gpt-training-dropout": Workload(
        lambda: _gpt(0.1), lambda steps: [[_tokens(4)] for _ in range(steps)], _next_token, random=True
    ),
    "kv-cache-decode": Workload(
        lambda: Decoder(scale(8, 2), scale(256, 32), 128),
        lambda steps: [[torch.randn(1, scale(256, 32))] for _ in range(steps)],
        None,
        skipped=True,
    ),
    "conv-bn-training": Workload(
        _conv_net, lambda steps: [[torch.randn(8, 3, 16, 16)] for _ in range(steps)], _square
    ),
    "gpt-number-and-mask": Workload(_gpt, _number_and_mask, _next_token, skipped=True),
    "six-shapes": Workload(
        _mlp,
        lambda steps: [[torch.randn(16 * (1 + i % 6), 256)] for i in range(steps)],
        _square,
        dynamic=False,
    ),
    "accumulation": Workload(
        lambda: GPT(scale(4, 2), scale(256, 32)),
        lambda steps: [[_tokens(4)] for _ in range(steps)],
        _next_token,
        accumulate=4,
    ),
}
