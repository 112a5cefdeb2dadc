"""Where in the user's program a node of a graph comes from."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import fx

__all__ = ["source_frames", "source_line"]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def source_line(node: fx.Node) -> str | None:
    """Return ``"model.py:41"`` for a node that carries a stack trace, or None.

    The innermost frame counts: it is the line that called the operation.
    """
    frames = source_frames(node)
    if not frames:
        return None
    file, line = frames[-1]
    return f"{os.path.basename(file)}:{line}"


def source_frames(node: fx.Node) -> list[tuple[str, str]]:
    """Return file and line of each frame of a node's stack trace, outermost first."""
    return _FRAME.findall(node.stack_trace or "")
