"""What an executor is: something that compiles a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import fx

from aot_core.protocol import Availability

__all__ = ["CompiledRegion", "Executor"]

CompiledRegion = Callable[[list[Any]], Sequence[Any]]
"""Takes one list of a region's inputs (tensors, and numbers where sizes are symbolic), which it may empty to free
them early, and returns the region's outputs in order."""


@runtime_checkable
class Executor(Protocol):
    """Compiles regions. Anything with these methods and attributes can be given to `create_nvprims_backend`.

    An executor is shared by all backends and threads of a process.

    Attributes:
        name: What it is called in options and reports.
        device_types: Types of the devices whose tensors it takes, ``("cuda",)``; None for all. Operators on other
            devices are not taken apart for it.
    """

    name: str
    device_types: tuple[str, ...] | None

    def availability(self) -> Availability:
        """Tell whether it can compile and run here; if not, why, and what to do about it."""
        ...

    def refuse(self, node: fx.Node) -> str | None:
        """Say why it can't do a node that the op set claims, in a few words; None takes the node.

        It is asked after the entry's own rule agreed, so that the node's values have ``meta["val"]``, plain
        dtypes, one device and at most eight dimensions.
        """
        ...

    def compile_region(self, subgraph: fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledRegion:
        """Compile a region.

        Args:
            subgraph: ``region(inputs) -> [outputs]``, of claimed nodes alone. It may hold ``aten.copy_`` to one of
                its inputs: a write to an input of the whole graph, which must be seen there afterwards. The
                outputs must have the sizes and strides that ``meta["val"]`` promises. It must not be changed: it is
                what runs if the executor fails.
            example_inputs: What the inputs were traced as: fake tensors, and numbers, some symbolic.

        Returns:
            What runs it.

        Raises:
            Exception: any. The region is then run by ATen, and that is recorded; under ``strict`` it is an error.
        """
        ...
