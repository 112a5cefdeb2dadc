"""``torch.ops.nvprims``: the op set as operators of torch, to read claimed graphs by. None is needed to run one.

A call of one goes through the dispatcher's Python layer, and costs some twenty times as much as the operator of ATen
that it calls. So graphs stay ATen, and this is a view of them.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.nvprims.claims import Claims, claim
from aot_partition.nvprims.entry import Nvprim
from aot_partition.nvprims.table import NVPRIMS

__all__ = ["as_nvprims", "register_nvprims"]


@functools.cache
def register_nvprims() -> Mapping[Any, Any]:
    """Define ``torch.ops.nvprims``: an operator for each entry, an overload for each operator of ATen it stands for.

    Returns:
        Operator of ATen → operator of nvprims. An overload is named like ATen's, and after the operator where an entry
        stands for several: ``nvprims.add.Tensor``, ``nvprims.matmul.mm``.
    """
    library: Any = _compat.new_library("nvprims")
    found: dict[Any, Any] = {}
    for entry in NVPRIMS.values():
        for target, overload in _overload_names(entry).items():
            qualified = f"{entry.name}.{overload}" if overload else entry.name
            library.define(re.sub(r"^[\w:.]+", qualified, _compat.schema_text(target), count=1))
            library.impl(qualified, target, "CompositeExplicitAutograd")
            found[target] = getattr(getattr(torch.ops.nvprims, entry.name), overload or "default")
    _kept.append(library)
    return MappingProxyType(found)


# The operators exist for as long as their library does.
_kept: list[Any] = []


def _overload_names(entry: Nvprim) -> dict[Any, str]:
    own = {target: str(target).rpartition(".")[2] for target in entry.targets}
    shared = collections.Counter(own.values())
    return {
        target: str(target).split(".")[1] if shared[name] > 1 else name.replace("default", "")
        for target, name in own.items()
    }


def as_nvprims(graph_module: fx.GraphModule, claims: Claims | None = None) -> fx.GraphModule:
    """Return a copy of a graph in which claimed nodes call ``torch.ops.nvprims``.

    Before::

        add = torch.ops.aten.add.Tensor(x, y)
        mm = torch.ops.aten.mm.default(add, w)

    After::

        add = torch.ops.nvprims.add.Tensor(x, y)
        mm = torch.ops.aten.mm.default(add, w)

    Args:
        graph_module: A graph of ATen operators. Not changed.
        claims: What is claimed in it; by default what the op set claims.

    Returns:
        A graph that computes the same.
    """
    claims = claim(graph_module) if claims is None else claims
    operators = register_nvprims()
    claimed = {node.name for node in claims}
    copy = _compat.copy_graph_module(graph_module)
    for node in copy.graph.nodes:
        if node.name in claimed and node.target in operators:
            node.target = operators[node.target]
    copy.recompile()
    return copy
