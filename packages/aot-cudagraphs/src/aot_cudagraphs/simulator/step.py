"""One recorded operation: what to call, at which addresses, and where its results go."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.errors import ReplayMismatchError
from aot_cudagraphs.simulator.addresses import copy_bytes

__all__ = ["Result", "Step"]


@dataclasses.dataclass(frozen=True)
class Result:
    """A result in new memory.

    Args:
        leaf: Which of the leaves of what the operator returns.
        address: Where its storage was put.
        nbytes: The size of its storage.
        size: Its sizes when it was recorded.
        stride: Its strides then.
    """

    leaf: int
    address: int
    nbytes: int
    size: torch.Size
    stride: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One kernel, as a graph holds it.

    Args:
        op: The operator.
        args: Its arguments; tensors are at the addresses of when it was recorded.
        kwargs: Likewise.
        results: Those of its results that are not written in place.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Result, ...]

    def run(self) -> None:
        """Run the operator again.

        Raises:
            ReplayMismatchError: a result has other sizes or strides than when it was recorded.
        """
        returned = self.op(*self.args, **self.kwargs)
        if not self.results:
            return
        leaves = _compat.pytree.tree_leaves(returned)
        for result in self.results:
            tensor = leaves[result.leaf]
            storage = tensor.untyped_storage()
            got = (tensor.size(), tensor.stride(), storage.nbytes())
            if got != (result.size, result.stride, result.nbytes):
                raise ReplayMismatchError(
                    f"{self.op} returned sizes {tuple(tensor.size())} and strides {tensor.stride()} at replay; "
                    f"expected {tuple(result.size)} and {result.stride}, as when it was recorded. Its result's shape "
                    "depends on values, and the table of refusals does not know that. Leave the operation out of the "
                    "captured function."
                )
            copy_bytes(storage, result.address)
