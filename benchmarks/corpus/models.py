"""The models: nothing but torch, no dropout, small widths, any depth."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["MODELS"]


class Transformer(nn.Module):
    """Pre-norm decoder blocks with an explicit softmax, as in GPT-2."""

    def __init__(self, depth: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(depth)
        )

    def attend(self, block: nn.ModuleDict, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = block["qkv"](x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        mixed = scores.softmax(-1) @ v
        return block["out"](mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + self.attend(block, block["norm1"](x))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        return x


class Llama(nn.Module):
    """RMS norm, rotary positions, gated feed-forward, fused attention."""

    def __init__(self, depth: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        linear = nn.Linear
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width, bias=False),
                    "q": linear(width, width, bias=False),
                    "k": linear(width, width, bias=False),
                    "v": linear(width, width, bias=False),
                    "o": linear(width, width, bias=False),
                    "norm2": nn.LayerNorm(width, bias=False),
                    "gate": linear(width, 2 * width, bias=False),
                    "up": linear(width, 2 * width, bias=False),
                    "down": linear(2 * width, width, bias=False),
                }
            )
            for _ in range(depth)
        )

    @staticmethod
    def normalise(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * norm.weight

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        frequencies = 1.0 / (10000 ** (torch.arange(0, size, 2, device=x.device, dtype=x.dtype) / size))
        angles = torch.outer(torch.arange(length, device=x.device, dtype=x.dtype), frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        for block in self.blocks:
            normed = self.normalise(block["norm1"], x)
            q, k, v = (
                block[name](normed).view(batch, length, self.heads, size).transpose(1, 2) for name in "qkv"
            )
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["o"](mixed.transpose(1, 2).reshape(batch, length, width))
            normed = self.normalise(block["norm2"], x)
            x = x + block["down"](F.silu(block["gate"](normed)) * block["up"](normed))
        return x


class T5(nn.Module):
    """An encoder and a decoder that attends to it, with relative position biases shared by all blocks."""

    def __init__(self, depth: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.bias = nn.Embedding(32, heads)
        names = ("q", "k", "v", "o")

        def attention() -> nn.ModuleDict:
            return nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in names})

        def feed_forward() -> nn.Sequential:
            return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

        def norms(count: int) -> nn.ModuleList:
            return nn.ModuleList(nn.LayerNorm(width) for _ in range(count))

        half = max(1, depth // 2)
        self.encoder = nn.ModuleList(
            nn.ModuleDict({"own": attention(), "ff": feed_forward(), "norms": norms(2)}) for _ in range(half)
        )
        self.decoder = nn.ModuleList(
            nn.ModuleDict({"own": attention(), "cross": attention(), "ff": feed_forward(), "norms": norms(3)})
            for _ in range(half)
        )

    def attend(self, block: nn.ModuleDict, x: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        q = block["q"](x).view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
        k, v = (
            block[name](memory).view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for name in "kv"
        )
        scores = q @ k.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        return block["o"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        places = torch.arange(length, device=x.device)
        buckets = (places[:, None] - places[None, :]).abs().clamp(max=31)
        bias = self.bias(buckets).permute(2, 0, 1).unsqueeze(0)
        memory = x
        for block in self.encoder:
            normed = block["norms"][0](memory)
            memory = memory + self.attend(block["own"], normed, normed, bias)
            memory = memory + block["ff"](block["norms"][1](memory))
        for block in self.decoder:
            normed = block["norms"][0](x)
            x = x + self.attend(block["own"], normed, normed, bias)
            x = x + self.attend(block["cross"], block["norms"][1](x), memory, None)
            x = x + block["ff"](block["norms"][2](x))
        return x


class Bert(nn.Module):
    """Post-norm encoder blocks of torch.nn, behind embeddings of tokens and positions."""

    def __init__(self, depth: int, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        self.places = nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, activation="gelu", batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 100)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.places(places))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ViT(nn.Module):
    """Patches of an image by a convolution, a class token, pre-norm blocks."""

    def __init__(self, depth: int, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = Transformer(depth, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class ResNet(nn.Module):
    """Residual blocks of two convolutions with batch norm."""

    def __init__(self, depth: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3)))


class DenseNet(nn.Module):
    """Blocks of six layers, each reading all before it in its block; a transition between blocks."""

    def __init__(self, depth: int, growth: int = 4, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        layers: list[nn.Module] = []
        channels = width
        for number in range(depth):
            if number % 6 == 0 and number:
                layers.append(nn.Conv2d(channels, width, 1))
                channels = width
            layers.append(
                nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, growth, 3, padding=1))
            )
            channels += growth
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x) if isinstance(layer, nn.Conv2d) else torch.cat((x, layer(x)), dim=1)
        return self.head(x.mean((2, 3)))


class Lstm(nn.Module):
    """One LSTM cell, unrolled over ``depth`` steps."""

    def __init__(self, depth: int, width: int = 32) -> None:
        super().__init__()
        self.depth = depth
        self.mix = nn.Linear(2 * width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros_like(x)
        for step in range(self.depth):
            i, f, g, o = self.mix(torch.cat((x * (step + 1), h), dim=1)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Scan(nn.Module):
    """An elementwise recurrence that returns its state at each of ``depth`` steps: all of it is fusible."""

    def __init__(self, depth: int, width: int = 32) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
        self.inputs = nn.Parameter(torch.randn(depth, width))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        states = []
        for step in range(self.inputs.shape[0]):
            h = h * self.decay.sigmoid() + torch.tanh(x * self.inputs[step])
            states.append(h)
        return torch.stack(states)


def _sequence(batch: int) -> Tensor:
    return torch.randn(batch, 16, 64)


def _image(batch: int) -> Tensor:
    return torch.randn(batch, 3, 32, 32)


def _vector(batch: int) -> Tensor:
    return torch.randn(batch, 32)


def _tokens(batch: int) -> Tensor:
    return torch.randint(0, 100, (batch, 16))


MODELS: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], Tensor]]] = {
    "transformer": (Transformer, _sequence),
    "llama": (Llama, _sequence),
    "t5": (T5, _sequence),
    "bert": (Bert, _tokens),
    "vit": (ViT, _image),
    "resnet": (ResNet, _image),
    "densenet": (DenseNet, _image),
    "lstm": (Lstm, _vector),
    "scan": (Scan, _vector),
}
"""By name: what makes the model of a depth, and what makes its input for a batch size."""
