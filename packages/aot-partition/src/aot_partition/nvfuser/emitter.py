"""What a rule works with: the node, its operands as values of the fusion, and nvFuser's operations.

nvFuser computes 16-bit floats in float32 and leaves them there; a Python float makes a double of an int tensor; and
operands of other ranks are not aligned. A rule says all of that: it asks for its operands in the dtype in which it
computes and in the rank of its result, and casts the result to the dtype that the graph promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition.nvfuser.definition import Recorder, Value
from aot_partition.nvfuser.sizes import Sizes

__all__ = ["Drawings", "Emitter", "compute_dtype", "meta"]


def meta(argument: Any) -> Any:
    """Return what stands for an argument's value: the fake tensor or symbolic number of a node, or itself."""
    return argument.meta["val"] if isinstance(argument, fx.Node) else argument


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which eager kernels compute values of a dtype: float32 for 16-bit floats."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class Drawings:
    """Where random numbers of a region come from: a seed and an offset, its last two inputs if it draws any.

    Attributes:
        count: How many nodes draw.
    """

    STRIDE = 4
    """How far apart the offsets of two drawings are; a thread takes four numbers at a time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._start: tuple[Value, Value] | None = None
        self.count = 0

    def next(self) -> tuple[Value, Value]:
        """Return the seed and the offset of another drawing."""
        if self._start is None:
            self._start = (self._recorder.define_input(torch.int64), self._recorder.define_input(torch.int64))
        seed, offset = self._start
        if self.count:
            offset = self._recorder.ops.add(
                offset, self._recorder.constant(self.STRIDE * self.count, torch.int64)
            )
        self.count += 1
        return seed, offset


class Emitter:
    """Writes one node of a region into a definition.

    Attributes:
        node: The node.
        ops: nvFuser's operations.
        sizes: Turns symbolic sizes into scalars of the fusion.
        drawing: Returns the seed and the offset of a drawing of random numbers.
    """

    def __init__(
        self,
        node: fx.Node,
        recorder: Recorder,
        sizes: Sizes,
        values: Mapping[fx.Node, Any],
        drawings: Drawings,
    ) -> None:
        self.node = node
        self.ops = recorder.ops
        self.sizes = sizes
        self._recorder = recorder
        self._values = values
        self.drawing = drawings.next

    @property
    def out(self) -> Any:
        """What the node must give: a fake tensor, or a tuple of them."""
        return self.node.meta["val"]

    def tensor(self, argument: fx.Node) -> Any:
        """Return an operand as it is, in its own dtype and rank."""
        return self._values[argument]

    def operand(self, argument: Any, dtype: torch.dtype, rank: int | None = None) -> Value:
        """Return a tensor or a number in a dtype, with dimensions of size 1 in front up to a rank."""
        if not isinstance(argument, fx.Node):
            return self.constant(argument, dtype)
        value = meta(argument)
        if not isinstance(value, torch.Tensor):
            size = self.sizes(value)
            if not isinstance(size, Value):
                return self.constant(size, dtype)
            return size if dtype is torch.int64 else self.ops.cast(size, dtype)
        made = self.cast(self._values[argument], value.dtype, dtype)
        return made if rank is None else self.aligned(made, value.dim(), rank)

    def constant(self, number: bool | int | float, dtype: torch.dtype) -> Value:
        """Return a Python number as a constant: a bool, an int or a float, as the dtype is."""
        if dtype is torch.bool:
            return self._recorder.constant(bool(number), torch.bool)
        if dtype.is_floating_point:
            return self._recorder.constant(float(number), torch.float64)
        return self._recorder.constant(int(number), torch.int64)

    def cast(self, value: Value, source: torch.dtype, target: torch.dtype) -> Value:
        """Cast a tensor, if there is anything to cast."""
        return value if source is target else self.ops.cast(value, target)

    def result(self, value: Value, dtype: torch.dtype) -> Value:
        """Cast what was computed in a dtype to the node's."""
        return self.cast(value, dtype, self.out.dtype)

    def aligned(self, value: Value, rank: int, target: int) -> Value:
        """Add dimensions of size 1 in front."""
        if rank == target:
            return value
        return self.ops.broadcast(value, (True,) * (target - rank) + (False,) * rank)

    def expanded(self, value: Value, shape: Sequence[Any], target: Sequence[Any]) -> Value:
        """Broadcast a tensor of a shape to another."""
        made = self.aligned(value, len(shape), len(target))
        if (1,) * (len(target) - len(shape)) + tuple(shape) == tuple(target):
            return made
        return self.ops.expand(made, self.shape(target))

    def shape(self, sizes: Sequence[Any]) -> list[Any]:
        """Return sizes as numbers and scalars of the fusion."""
        return [self.sizes(size) for size in sizes]

    def size_value(self, size: Any) -> Value:
        """Return a size as an int64 scalar of the fusion."""
        number = self.sizes(size)
        return number if isinstance(number, Value) else self.constant(number, torch.int64)

    def product(self, sizes: Sequence[Any]) -> int | Value:
        """Return the product of sizes."""
        return self.sizes(math.prod(sizes))

    def full(self, sizes: Sequence[Any], number: bool | int | float, dtype: torch.dtype) -> Value:
        """Make a tensor of one number."""
        made: Value = self.ops.full(self.shape(sizes), self.constant(number, dtype), dtype)
        return made

    def indices(self, length: Any, *, start: int = 0, step: int = 1) -> Value:
        """Make the int64 tensor ``start, start + step, …``."""
        said = (self.size_value(length), self.constant(start, torch.int64), self.constant(step, torch.int64))
        made: Value = self.ops.iota(*said, torch.int64)
        return made

    def along(self, value: Value, dim: int, rank: int) -> Value:
        """Lay a one-dimensional tensor along a dimension."""
        if rank == 1:
            return value
        return self.ops.broadcast(value, tuple(i != dim for i in range(rank)))

    def apart(self, name: str, value: Value, *said: Any) -> Any:
        """Compute an operation in a segment of its own.

        Sorting and scanning fused with others needs headers of a CUDA toolkit as old as nvFuser's NVRTC, and some
        combinations can't be put in order; alone, each has a kernel.
        """
        made: Any = self.ops(name, self.ops.segment_set(value), *said)
        if isinstance(made, Value):
            return self.ops.segment_set(made)
        return tuple(self.ops.segment_set(each) for each in made)
