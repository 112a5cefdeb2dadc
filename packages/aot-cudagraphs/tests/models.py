"""The models that the tests train: small, and between them everything that training does to memory."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def mlp(dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(32, 32), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(32, 1))


class Block(nn.Module):
    """A transformer block, pre-norm."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (dim // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = self.drop(scores.masked_fill(future, float("-inf")).softmax(-1))
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))
        return x + self.drop(self.mlp(self.norm2(x)))

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class GPT(nn.Module):
    def __init__(self, dropout: float = 0.0, layers: int = 2, dim: int = 32, vocabulary: int = 48) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(64, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


class Decoder(nn.Module):
    """Attention over a cache of keys and values that each call writes one row of."""

    def __init__(self, dim: int = 16, length: int = 24) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.register_buffer("keys", torch.zeros(length, dim))
        self.register_buffer("values", torch.zeros(length, dim))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.keys.index_copy_(0, self.position.view(1), self.k(x).view(1, -1))
        self.values.index_copy_(0, self.position.view(1), self.v(x).view(1, -1))
        seen = torch.arange(self.keys.shape[0], device=x.device) <= self.position
        self.position += 1
        weights = (self.q(x) @ self.keys.T).masked_fill(~seen, float("-inf")).softmax(-1)
        return weights @ self.values
