"""Random numbers from a seed and an offset that the graph holds as values.

A drawing is a function of its arguments: whoever computes it again, in the backward say, gets the same bits.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from aot_partition.nvfuser.definition import Value
from aot_partition.nvfuser.emitter import Emitter

__all__: list[str] = []


def drawn_uniform(e: Emitter, seed: fx.Node, offset: fx.Node, **_: Any) -> Value:
    """Numbers from [0, 1)."""
    raise NotImplementedError
