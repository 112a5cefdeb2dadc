"""The options of the backends in this package."""

from __future__ import annotations

import dataclasses
from typing import Literal

from aot_core import Settings

__all__ = ["XlaSettings"]


@dataclasses.dataclass(frozen=True)
class XlaSettings(Settings):
    """Options of the XLA backends.

    Args:
        detect_writes: How a tensor that was moved to XLA before is found to have changed since. Its version
            counter tells most writes and is always asked. ``"contents"`` also compares it with a copy of what
            was moved, which finds writes through ``.data`` and NumPy, and takes as much memory on the CPU as
            the tensor. ``"versions"`` trusts the counter.
    """

    detect_writes: Literal["contents", "versions"] = "contents"
