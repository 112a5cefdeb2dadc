"""Entries that read or write where a tensor of positions says, and the write to an input of the graph."""

from __future__ import annotations

import torch
from torch import fx

from aot_partition.nvprims.common_rules import all_of
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads, value_of

__all__ = ["ENTRIES"]


def _integer_positions(node: fx.Node) -> str | None:
    arguments = call_arguments(node)
    index = value_of(arguments["indices"] if "indices" in arguments else arguments["index"])
    if index.dtype not in (torch.int64, torch.int32):
        return f"positions of dtype {index.dtype}"
    return None


def _plain_embedding(node: fx.Node) -> str | None:
    arguments = call_arguments(node)
    if arguments["sparse"]:
        return "a sparse gradient"
    return None if value_of(node.args[0]).dim() == 2 else "a table that is no matrix"


def _writes_an_input(node: fx.Node) -> str | None:
    """Take the writes that AOTAutograd leaves at the end of a graph: of a whole input, value and target alike."""
    target, source = node.args[:2]
    if not (isinstance(target, fx.Node) and isinstance(source, fx.Node)):
        return "it writes a number"
    if target.op != "placeholder":
        return "it writes something else than an input of the graph"
    written, value = value_of(target), value_of(source)
    if written.dtype is not value.dtype or written.dim() != value.dim():
        return "it converts what it writes"
    if any(node.users):
        return "what it wrote is read again"
    return None


ENTRIES = (
    Nvprim("gather", overloads("gather"), Kind.INDEX, recomputable=False, rule=_integer_positions),
    Nvprim(
        "index_select", overloads("index_select"), Kind.INDEX, recomputable=False, rule=_integer_positions
    ),
    Nvprim(
        "scatter",
        overloads("scatter", "src", "value"),
        Kind.INDEX,
        recomputable=False,
        rule=_integer_positions,
    ),
    Nvprim(
        "embedding",
        overloads("embedding"),
        Kind.INDEX,
        recomputable=False,
        rule=all_of(_integer_positions, _plain_embedding),
    ),
    Nvprim("copy_", overloads("copy_"), Kind.WRITE, recomputable=False, rule=_writes_an_input),
)
"""Reads and writes by position, and the write to an input."""
