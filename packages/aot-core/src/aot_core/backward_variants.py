"""One backward graph per autocast state that ``.backward()`` is called under.

The forward has run by then, so a variant must live on what that forward saved. It can: which values autograd
saves is settled by the forward alone, and the autocast state only changes what the backward does with them.

::

    trace 1, ambient autocast off          joint ── partition ──> forward, backward
                                                        └─ interface: names of saved values
    first .backward() under another state  joint' ─ cut along the same interface ──> backward'
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.memory import is_leaf
from aot_core.autocast import AUTOCAST_OFF, AutocastState, autocast_state
from aot_core.boxed_calls import boxed

if TYPE_CHECKING:
    from aot_core.protocol import BoxedCallable

__all__ = ["AbstractInputs", "BackwardVariants"]


class BackwardVariants:
    """A boxed backward that looks at the autocast state of each call.

    Args:
        base: Backward traced with autocast off.
        compile_variant: Makes the backward for another state; raises `BackwardAutocastError` if it can't.
    """

    def __init__(
        self, base: BoxedCallable, compile_variant: Callable[[AutocastState], BoxedCallable]
    ) -> None:
        self._variants = {AUTOCAST_OFF: base}
        self._compile_variant = compile_variant

    def as_boxed(self) -> BoxedCallable:
        """Return the function to give to AOTAutograd."""
        base, variants = self._variants[AUTOCAST_OFF], self._variants

        def backward(args: list[Any]) -> Any:
            if not _compat.any_autocast_enabled():
                return base(args)
            state = autocast_state()
            # The graph holds its casts already: run under autocast, they would be made twice.
            with _compat.disabled_autocast():
                if state not in variants:
                    variants[state] = self._compile_variant(state)
                return variants[state](args)

        return boxed(backward)


class AbstractInputs:
    """What a graph's inputs look like, without the inputs: enough to trace it again, nothing kept alive.

    Args:
        gm: The graph; placeholders that carry a fake tensor tell symbolic sizes.
        example_inputs: Its inputs.

    Attributes:
        obstacle: Why these inputs can't be described, or None.
    """

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self.obstacle: str | None = None
        self._fake_mode: Any = None
        self._inputs: list[Any] = []
        storages: set[int] = set()
        for node, value in zip(placeholders, example_inputs, strict=True):
            known = node.meta.get("example_value", node.meta.get("val"))
            if _compat.is_fake(known):
                self._fake_mode = _compat.fake_mode_of(known)
            if isinstance(value, torch.Tensor):
                self._note_obstacle(node.name, value, storages)
                self._inputs.append(_TensorDescription.of(value, known))
            else:
                self._inputs.append(known if isinstance(known, torch.SymInt) else value)

    def _note_obstacle(self, name: str, value: torch.Tensor, storages: set[int]) -> None:
        if value.layout is not torch.strided or not (
            type(value) in (torch.Tensor, torch.nn.Parameter) or _compat.is_fake(value)
        ):
            self.obstacle = f"input {name!r} is a {type(value).__name__} of layout {value.layout}"
            return
        storage = value.untyped_storage()._cdata
        if storage in storages:
            self.obstacle = f"input {name!r} shares memory with another input"
        storages.add(storage)

    @contextlib.contextmanager
    def traced(self) -> Iterator[list[Any]]:
        """Yield fake tensors of this description, inside a tracing context that goes with them."""
        mode = self._fake_mode if self._fake_mode is not None else _compat.new_fake_mode()
        with mode:
            inputs = [x.fake() if isinstance(x, _TensorDescription) else x for x in self._inputs]
        with _compat.tracing_under(mode):
            yield inputs


@dataclasses.dataclass(frozen=True)
class _TensorDescription:
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_leaf: bool

    @classmethod
    def of(cls, value: torch.Tensor, known: Any) -> _TensorDescription:
        # Dynamo ran the graph on its fake tensors; where that changed their metadata, they describe the input
        # after the call, and only the example itself can be trusted.
        shaped = value
        if _compat.is_fake(known) and [_compat.hint(n) for n in (*known.size(), *known.stride())] == [
            _compat.hint(n) for n in (*value.size(), *value.stride())
        ]:
            shaped = known
        return cls(
            tuple(shaped.size()),
            tuple(shaped.stride()),
            value.dtype,
            value.device,
            value.requires_grad,
            is_leaf(value),
        )

    def fake(self) -> torch.Tensor:
        tensor = torch.empty_strided(
            self.size, self.stride, dtype=self.dtype, device=self.device, requires_grad=self.requires_grad
        )
        return tensor if self.is_leaf else tensor.view_as(tensor)
