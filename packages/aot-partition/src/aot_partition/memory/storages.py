"""Which memory a node's value lives in: by storage, so that views and mutations cost nothing twice.

::

    t = aten.t(w)             the storage of w, 0 new bytes
    a, b = aten.var_mean(x)   two storages
    y = aten.add_(x, 1)       the storage of x
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["StorageMap"]

CUDA_GRANULE = 512
"""The CUDA allocator hands out multiples of this many bytes."""


class StorageMap:
    """Numbers the storages of one or more graphs, and knows how many bytes each has.

    The fake tensors of a trace tell what shares memory: where a node's value has the storage of one of its
    arguments, eager kernels return a view. Any other storage is new, also where two nodes carry the same
    fake tensor: one is then a recomputation of the other. A partition merges duplicates; where it did,
    ``meta["merged_storages"]`` tells which storage stands for that of the trace. Symbolic sizes count at their
    hints, the sizes that the graph was traced with.

    Attributes:
        sizes: Bytes of each storage, by its number.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._of_node: dict[fx.Node, dict[Any, int]] = {}

    def add(self, graph: fx.Graph, same: Mapping[fx.Node, fx.Node] | None = None) -> None:
        """Number the storages of all nodes of a graph.

        Args:
            graph: Nodes carry ``meta["val"]``.
            same: Maps a placeholder to the node of a graph added before that it stands for.
        """
        inputs: dict[Any, int] = {}
        for node in graph.nodes:
            found = list(_storages(node.meta.get("val")))
            if same and node in same:
                # Graphs traced apart have fake tensors of their own for what is one tensor at run time.
                known = list(self._of_node[same[node]].values())
                keys = list(dict.fromkeys(key for key, _ in found))
                assert len(keys) == len(known), (node, same[node])
                inputs.update(zip(keys, known, strict=True))
            if node.op in ("placeholder", "get_attr"):
                shared: Mapping[Any, int] = inputs
            else:
                shared = {
                    k: v for argument in node.all_input_nodes for k, v in self._of_node[argument].items()
                }
            own = self._of_node[node] = dict[Any, int]()
            merged = node.meta.get("merged_storages", {})
            for key, size in found:
                there = key if key in shared else merged.get(key)
                number = own[key] = shared[there] if there in shared else own.get(key, len(self.sizes))
                if number == len(self.sizes):
                    self.sizes.append(size)
            if shared is inputs:
                inputs.update(own)

    def of(self, node: fx.Node) -> tuple[int, ...]:
        """Return the storages that a node's value lives in, each once; () for numbers and None."""
        return tuple(self._of_node[node].values())

    def read_by(self, node: fx.Node) -> set[int]:
        """Return the storages of all of a node's arguments."""
        return {storage for argument in node.all_input_nodes for storage in self.of(argument)}

    def made_by(self, node: fx.Node) -> tuple[int, ...]:
        """Return the storages of a node's value that none of its arguments has; () for a view."""
        read = self.read_by(node)
        return tuple(storage for storage in self.of(node) if storage not in read)


def _storages(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield identity and bytes of the storage of each plain tensor that a value is made of."""
    if isinstance(value, torch.Tensor):
        for tensor in _compat.plain_tensors(value):
            storage = _compat.storage_of(tensor)
            if storage is not None:
                yield storage[0], _allocated(_compat.size_hint(storage[1]), tensor.device)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _storages(item)


def _allocated(size: int, device: torch.device) -> int:
    """Return how many bytes the allocator of a device hands out for a storage."""
    return -(-size // CUDA_GRANULE) * CUDA_GRANULE if device.type == "cuda" else size
