"""``text-gpt``: a character GPT with dropout on the English text that Python itself ships.

The text is the language reference behind ``help("...")``, some 450,000 characters in the standard library's
`pydoc_data.topics`; it differs a little from one Python version to the next.
"""

from __future__ import annotations

import torch
from torch import nn

from aot_registry.bench.errors import MissingWorkloadDataError
from aot_registry.bench.workloads.workload import Workload

__all__ = ["CharacterGPT", "build", "load_text"]

BATCH_SIZE = 8
CONTEXT = 64
NUM_BATCHES = 64


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which no position sees a later one.

    Written out rather than as one fused op, so that a backend has scores, softmax and dropout to fuse, to
    save or to recompute.
    """

    causal: torch.Tensor

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("causal", torch.ones(context, context, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``[B, T, width]`` to the same shape."""
        batch, time, width = x.shape
        split = self.project_in(x).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(~self.causal[:time, :time], float("-inf"))
        mixed = self.dropout(scores.softmax(dim=-1)) @ value
        projected: torch.Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, time, width))
        return projected


class Block(nn.Module):
    """A pre-norm transformer block on ``[B, T, width]``."""

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, context, dropout)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``[B, T, width]`` to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x


class CharacterGPT(nn.Module):
    """Characters ``[B, T]`` int64 to logits ``[B, T, vocabulary]`` of each next one; T up to ``context``."""

    def __init__(
        self,
        vocabulary: int,
        *,
        context: int = CONTEXT,
        width: int = 64,
        heads: int = 4,
        depth: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Parameter(torch.randn(context, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, context, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Return logits ``[B, T, vocabulary]`` for characters ``[B, T]``."""
        x = self.token_embedding(characters) + self.position_embedding[: characters.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(self.dropout(x))))
        return logits


def load_text() -> str:
    """Return the text of Python's help topics.

    Raises:
        MissingWorkloadDataError: this Python was built without them.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise MissingWorkloadDataError(
            f"Workload 'text-gpt' trains on the text of the standard library's pydoc_data.topics, which this "
            f"Python lacks ({error}). Use a Python with its documentation data (Debian and Alpine split it "
            "off; python.org's and conda's have it), or bench FILE.py:build with a text of your own."
        ) from error
    text = "\n".join(topics[name] for name in sorted(topics))
    if len(text) < 10 * CONTEXT * BATCH_SIZE:
        raise MissingWorkloadDataError(
            f"Workload 'text-gpt' trains on the text of the standard library's pydoc_data.topics, which this "
            f"Python has stripped to {len(text)} characters. Use a Python with its documentation data, or "
            "bench FILE.py:build with a text of your own."
        )
    return text


def build(seed: int) -> Workload:
    """Build the workload.

    Batches are 64 pairs of characters and their successors, both ``[8, 64]`` int64, cut from the text at
    places drawn with ``seed``.

    Raises:
        MissingWorkloadDataError: this Python was built without the text.
    """
    text = load_text()
    alphabet = sorted(set(text))
    number = {character: index for index, character in enumerate(alphabet)}
    encoded = torch.tensor([number[character] for character in text])
    windows = encoded.unfold(0, CONTEXT + 1, 1)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(windows), (NUM_BATCHES, BATCH_SIZE), generator=generator)
    return Workload(
        name="text-gpt",
        model=CharacterGPT(len(alphabet)),
        batches=[(windows[rows, :-1].clone(), windows[rows, 1:].clone()) for rows in starts],
        loss_fn=_next_character_loss,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    )


def _next_character_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
