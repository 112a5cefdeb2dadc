"""Ten small models, each with what a compiler can get wrong: buffers, written inputs, dropout, graph breaks, views."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["MODELS", "build"]


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = F.gelu(self.first(x))
        return self.last(hidden)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.norm(self.first(x))
        hidden = F.silu(hidden)
        return self.last(hidden)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        hidden = torch.relu(self.norm(self.conv(x)))
        pooled = hidden.mean(dim=(2, 3))
        return self.last(pooled)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 6**0.5
        weights = torch.softmax(scores, dim=-1)
        return x + self.out(weights @ v)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 16), nn.Linear(16, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        hidden = F.dropout(hidden, 0.4, self.training)
        return self.last(hidden)


class Tally(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        hidden = torch.sigmoid(self.first(x))
        self.total.add_(hidden.detach().sum(dim=0))
        self.calls += 1
        return hidden * self.total


class WritesInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)

    def forward(self, x):
        x.mul_(0.5)
        hidden = torch.sin(x)
        return torch.exp(self.first(hidden) * 0.1)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x):
        hidden = F.softplus(self.first(x))
        return {"left": self.left(hidden), "right": torch.tanh(self.right(hidden))}


@torch.compiler.disable
def outside(x):
    return x + 1


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        hidden = outside(hidden)
        hidden = torch.cos(hidden) * hidden
        return torch.sigmoid(self.last(hidden))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(11, 6), nn.Linear(6, 5)

    def forward(self, words):
        mean = self.table(words).mean(dim=1)
        return F.log_softmax(self.last(F.elu(mean)), dim=-1)


MODELS = {
    "perceptron": (Perceptron, (6, 5)),
    "normed": (Normed, (6, 5)),
    "convolution": (Convolution, (3, 2, 6, 6)),
    "attention": (Attention, (2, 4, 6)),
    "dropped": (Dropped, (6, 5)),
    "tally": (Tally, (6, 5)),
    "writes_input": (WritesInput, (6, 5)),
    "two_heads": (TwoHeads, (6, 5)),
    "broken": (Broken, (6, 5)),
    "bag": (Bag, (4, 3)),
}
"""Class and size of the input, by name."""


def build(name: str, seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """Return a model in training mode and its input."""
    cls, size = MODELS[name]
    torch.manual_seed(seed)
    model = cls()
    inputs = torch.randint(0, 11, size) if name == "bag" else torch.randn(size)
    return model, inputs
