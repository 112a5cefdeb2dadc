"""What a graph does to its inputs, found by running it on fake tensors.

Every input gets memory of its own here, so that a write to one is not taken for a write to another. Writes
are seen at the dispatcher, where a schema says what an operator writes; a change of size, strides or offset,
and an output that is an input, are seen by comparing before and after.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.memory import Geometry, alias_root, geometry_of, has_memory, is_leaf
from aot_core.analysis.mutation import find_written_tensors
from aot_core.interpreter import RuntimeInterpreter

__all__ = [
    "Effects",
    "InputEffect",
    "copies_or_views",
    "fake_like",
    "find_effects",
    "find_repeated",
    "leaves_reached",
    "node_name",
    "without_inference_mode",
]


@dataclasses.dataclass
class InputEffect:
    """What happens to one input.

    Args:
        written: Its elements are written.
        strides_matter: It is not contiguous, and an operation that copies or views by the strides (``reshape``) made
            a view of it.
        gains_grad: It does not require a gradient before, and does after.
        geometry: What its size, strides and offset are afterwards, if the graph changes them.
    """

    written: bool = False
    strides_matter: bool = False
    gains_grad: bool = False
    geometry: Geometry | None = None

    @property
    def changed(self) -> bool:
        """Whether anything about it changes."""
        return self.written or self.geometry is not None


@dataclasses.dataclass
class Effects:
    """What happens to all inputs.

    Args:
        inputs: One per input; for one that is no tensor, nothing happens.
        returned: Position of an output → position of the input that it *is*.
        repeated: Position of an output → position of the first output that is the same tensor. Of these, the following
            name the first one alone.
        views: Position of an output that autograd knows as a view of an input, of the same dtype → position of that
            input, and the view's size, strides and offset.
        unrecorded: Position of an output that is a view made under ``no_grad`` of what requires a gradient →
            position of the input in whose memory it lies, or None if it lies in none's.
        detached: Positions of outputs that lie in an input's memory without being views of it for autograd, and
            that require a gradient all the same, since something that does was written to them.
        dead_ends: Positions of outputs that require a gradient which leads to no input, since they are computed
            from a view made under ``no_grad``.
        lone_views: Those of ``unrecorded`` in whose memory neither an input nor another output lies.
        copies: Names of nodes that copied elements of an input where other strides would have let them view it.
        unknown: Why the graph could not be run on fake tensors, or None.
    """

    inputs: list[InputEffect]
    returned: dict[int, int] = dataclasses.field(default_factory=dict)
    repeated: dict[int, int] = dataclasses.field(default_factory=dict)
    views: dict[int, tuple[int, Geometry]] = dataclasses.field(default_factory=dict)
    unrecorded: dict[int, int | None] = dataclasses.field(default_factory=dict)
    detached: list[int] = dataclasses.field(default_factory=list)
    dead_ends: list[int] = dataclasses.field(default_factory=list)
    lone_views: list[int] = dataclasses.field(default_factory=list)
    copies: list[str] = dataclasses.field(default_factory=list)
    unknown: str | None = None

    @property
    def changed(self) -> list[int]:
        """Positions of the inputs that change, or of all where that is not known."""
        return [i for i, effect in enumerate(self.inputs) if effect.changed or self.unknown is not None]

    @property
    def viewed(self) -> list[int]:
        """Positions of the inputs that are written and whose strides change or matter.

        AOTAutograd, which replaces what is written by new values, does not keep those.
        """
        matters = (effect.geometry is not None or effect.strides_matter for effect in self.inputs)
        return [i for i, it in enumerate(matters) if it and self.inputs[i].written]


def find_effects(gm: fx.GraphModule, inputs: Sequence[Any]) -> Effects:
    """Run a graph on fake versions of its inputs, and tell what it does to them.

    Args:
        gm: A graph as Dynamo captured it.
        inputs: Its inputs. Only looked at.
    """
    effects = Effects([InputEffect() for _ in inputs])
    mode = _compat.new_fake_mode()
    try:
        fakes = [fake_like(x, mode) if isinstance(x, torch.Tensor) else _compat.concrete(x) for x in inputs]
        before = [geometry_of(x) if has_memory(x) else None for x in fakes]
        watch = _WatchWrites(fakes, effects.inputs)
        with without_inference_mode(), _compat.tracing_under(mode), mode, watch:
            result = _WatchStrides(gm, fakes, effects).run(*fakes)
            outputs = result if isinstance(result, (tuple, list)) else (result,)
            effects.repeated = find_repeated(outputs)
            first = {i: output for i, output in enumerate(outputs) if i not in effects.repeated}
            effects.unrecorded = {
                i: _owner(output, fakes) for i, output in first.items() if _compat.is_unrecorded_view(output)
            }
            storages = {i: x.untyped_storage()._cdata for i, x in first.items() if has_memory(x)}
            outputs_in = collections.Counter(storages.values())
            effects.lone_views = [
                i for i, owner in effects.unrecorded.items() if owner is None and outputs_in[storages[i]] == 1
            ]
            effects.detached = [i for i, output in first.items() if _is_differentiable_alias(output, fakes)]
            effects.dead_ends = [i for i, output in first.items() if _is_dead_end(output)]
            effects.views = {
                i: (owner, _relative(geometry_of(output), inputs[owner]))
                for i, output in first.items()
                if i not in effects.unrecorded and (owner := _viewed_input(output, fakes)) is not None
            }
    except Exception as error:
        effects.unknown = f"{type(error).__name__}: {error}"
        return effects
    for i, fake in enumerate(fakes):
        if not isinstance(fake, torch.Tensor):
            continue
        effect = effects.inputs[i]
        effect.gains_grad = fake.requires_grad and not inputs[i].requires_grad
        if before[i] is not None and geometry_of(fake) != before[i]:
            effect.geometry = _relative(geometry_of(fake), inputs[i])
    for position, output in enumerate(outputs):
        for i, fake in enumerate(fakes):
            if isinstance(fake, torch.Tensor) and output is fake:
                effects.returned[position] = i
    return effects


def find_repeated(outputs: Sequence[Any]) -> dict[int, int]:
    """Return position of a tensor → position of the first that is the same, for those that are no first."""
    first: dict[int, int] = {}
    positions = {i: first.setdefault(id(x), i) for i, x in enumerate(outputs) if isinstance(x, torch.Tensor)}
    return {i: earlier for i, earlier in positions.items() if i != earlier}


class _WatchStrides(RuntimeInterpreter):
    """Runs a graph and notes what operations do that depend on the strides of an input."""

    def __init__(self, gm: fx.GraphModule, fakes: Sequence[Any], effects: Effects) -> None:
        super().__init__(gm)
        self._fakes = fakes
        self._effects = effects

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if copies_or_views(n) and n.args and isinstance(n.args[0], fx.Node):
            owner = _owner(self.env[n.args[0]], self._fakes)
            if owner is not None and _owner(result, self._fakes) != owner:
                self._effects.copies.append(n.name)
            elif owner is not None and not self._fakes[owner].is_contiguous():
                self._effects.inputs[owner].strides_matter = True
        return result


class _WatchWrites(_compat.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which inputs' memory each operator writes."""

    def __init__(self, fakes: Sequence[Any], effects: Sequence[InputEffect]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = {
            fake.untyped_storage()._cdata: effect
            for fake, effect in zip(fakes, effects, strict=True)
            if has_memory(fake)
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if _compat.only_reshapes(func):
            return result
        for tensor in find_written_tensors(func, args, kwargs):
            effect = self._owner.get(tensor.untyped_storage()._cdata) if has_memory(tensor) else None
            if effect is not None:
                effect.written = True
        return result


def copies_or_views(node: fx.Node) -> bool:
    """Tell whether a node makes a view of its input where the strides allow it, and else a copy."""
    return node_name(node) in ("contiguous", "flatten", "ravel", "reshape", "reshape_as")


def node_name(node: fx.Node) -> str:
    """Return the name of the function or method that a node calls."""
    return str(getattr(node.target, "__name__", node.target))


def fake_like(tensor: torch.Tensor, mode: Any) -> torch.Tensor:
    """Return a fake tensor with a tensor's metadata and memory of its own."""
    if not has_memory(tensor):
        fake: torch.Tensor = mode.from_tensor(tensor.detach())
        return fake
    with without_inference_mode(), mode:
        fake = torch.empty_strided(
            [_compat.concrete(n) for n in tensor.size()],
            [_compat.concrete(n) for n in tensor.stride()],
            dtype=tensor.dtype,
            device=tensor.device,
        )
        if tensor.requires_grad:
            fake.requires_grad_()
            # In-place operations are legal on a tensor with a history, and not on a leaf.
            if not is_leaf(tensor):
                fake = _without_leaf(fake)
    return fake


@contextlib.contextmanager
def without_inference_mode() -> Iterator[None]:
    """Leave inference mode, and keep gradients off: fake tensors are none of its tensors, as in Dynamo."""
    grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        yield


def _is_dead_end(output: Any) -> bool:
    if not (isinstance(output, torch.Tensor) and output.requires_grad) or _compat.is_unrecorded_view(output):
        return False
    return not leaves_reached(output)


def leaves_reached(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaves that the gradient of a tensor would reach: itself, if it is one that requires a gradient."""
    if not tensor.requires_grad:
        return []
    if tensor.is_leaf:
        return [tensor]
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    queue = [tensor.grad_fn]
    while queue:
        node: Any = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # where a leaf's gradient is accumulated
            found.append(node.variable)
        queue += [following for following, _ in node.next_functions]
    return found


def _is_differentiable_alias(output: Any, fakes: Sequence[Any]) -> bool:
    if not (has_memory(output) and output.requires_grad):
        return False
    owner = _owner(output, fakes)
    return owner is not None and alias_root(fakes[owner]) is not alias_root(output)


def _owner(output: Any, fakes: Sequence[Any]) -> int | None:
    """Return the position of the input in whose memory an output lies."""
    if not has_memory(output):
        return None
    storage = output.untyped_storage()._cdata
    owners = (i for i, x in enumerate(fakes) if has_memory(x) and x.untyped_storage()._cdata == storage)
    return next(owners, None)


def _viewed_input(output: Any, fakes: Sequence[Any]) -> int | None:
    """Return the position of the input that an output is a view of for autograd, in the same dtype."""
    owner = _owner(output, fakes)
    if owner is None or output.dtype != fakes[owner].dtype:
        return None
    return owner if alias_root(fakes[owner]) is alias_root(output) else None


def _without_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the strides of a leaf that is computed from it."""
    with torch.enable_grad():
        if any(stride == 0 and n > 1 for n, stride in zip(leaf.size(), leaf.stride(), strict=True)):
            # Expanded: no operation computes one, so it is a view, and some of its parts may be written.
            reach = sum((n - 1) * stride for n, stride in zip(leaf.size(), leaf.stride(), strict=True))
            memory = torch.empty(max(reach + 1, 0), dtype=leaf.dtype, device=leaf.device, requires_grad=True)
            return memory.clone().as_strided(leaf.size(), leaf.stride())
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=leaf.device).copy_(
            leaf
        )


def _relative(changed: Geometry, tensor: torch.Tensor) -> Geometry:
    size, stride, offset = changed
    return size, stride, offset + geometry_of(tensor)[2]
