"""Graphs as files, where ``TORCH_COMPILE_DEBUG=1`` asks for them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from aot_core import _compat

if TYPE_CHECKING:
    from torch import fx

__all__ = ["dump_graph"]


def dump_graph(gm: fx.GraphModule, *, graph: str, stage: str) -> None:
    """Write a graph as readable Python to ``<torch's debug directory>/aot_core/<graph>_<stage>.py``.

    Does nothing unless the environment has ``TORCH_COMPILE_DEBUG=1``. Files are written here and now instead
    of through log handlers, of which a failed compile could leave some behind.
    """
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") != "1":
        return
    directory = os.path.join(_compat.debug_directory(), "aot_core")
    os.makedirs(directory, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", f"{graph}_{stage}")
    with open(os.path.join(directory, f"{name}.py"), "w", encoding="utf-8") as file:
        file.write(gm.print_readable(print_output=False))
