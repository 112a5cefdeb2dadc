"""Why a node can't be expressed in TorchScript."""

from __future__ import annotations

__all__ = ["Obstacle"]


class Obstacle(Exception):
    """Raised while a node is lowered, and caught where the graph is cut: the node then runs in FX.

    Args:
        code: A stable kebab-case identifier, for `aot_core.protocol.Decision`.
        reason: The cause for people.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
