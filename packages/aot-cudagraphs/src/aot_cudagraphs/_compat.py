"""The only file of this package that touches PyTorch's private interfaces.

What differs between torch 2.10 and 2.15 is told apart by looking for it, never by a version number. Each function
says what it stands for, so that a reader of the other files need not know torch's internals.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = ["TorchDispatchMode", "pytree"]

REQUIRED = (
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch._C", "_storage_Use_Count"),
    ("torch._C", "_DisableAutocast"),
    ("torch.utils._python_dispatch", "_disable_current_modes"),
)


# --- operators (refusals, simulator) -------------------------------------------------------------------------


def is_operator(target: Any) -> bool:
    """Tell whether a value is an operator of the dispatcher."""
    return isinstance(target, torch._ops.OpOverload)


def is_higher_order(target: Any) -> bool:
    """Tell whether a value is an operator that takes operators or graphs."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def has_tag(op: Any, name: str) -> bool:
    """Tell whether an operator has a tag; no operator has one that this torch does not know."""
    tag = getattr(torch.Tag, name, None)
    return tag is not None and tag in op.tags


# --- running operators below everything that Python can put in between (simulator) ----------------------------


@contextlib.contextmanager
def bare_dispatch() -> Iterator[None]:
    """Run operators as a device would: no autograd, no autocast, no mode of the calling thread sees them."""
    with (
        torch.no_grad(),
        torch._C._DisableAutocast(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        yield


def is_composite(op: Any) -> bool:
    """Tell whether an operator is nothing but a function of other operators, without a kernel of its own.

    Autograd takes these apart before a dispatch mode sees them, but not in inference mode. ``silu_backward`` and
    ``mish_backward`` have both, a function and a kernel, and the kernel is what runs.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CPU")
    return bool(op._can_decompose()) and not has_kernel


def storage_uses(storage: torch.UntypedStorage) -> int:
    """Return how many tensors, and Python objects, hold a storage."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return what identifies a storage as long as it lives."""
    return int(storage._cdata)


def generator_key(generator: torch.Generator) -> int:
    """Return what identifies a generator: the dispatcher makes a new Python object for it at each call."""
    return int(generator._cdata)  # type: ignore[attr-defined]


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one of autograd's zeros, which have sizes and no memory."""
    return bool(torch._is_zerotensor(tensor))


class PassiveMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that changes nothing, but that autograd can tell is there.

    Under any mode, autograd chooses formulas of derivatives that never write in place (``prod``, ``silu``, ``mish``).
    Their results may differ in the last bit.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def with_bits(tensor: torch.Tensor, *, conj: bool, neg: bool) -> torch.Tensor:
    """Return a tensor that is read as the conjugate or the negative of its memory."""
    if conj:
        tensor = torch._conj(tensor)
    return torch._neg_view(tensor) if neg else tensor


# --- capture on a device -------------------------------------------------------------------------------------


def has_unbacked_size(tensor: torch.Tensor) -> bool:
    """Tell whether a fake tensor has a size that only the data can tell."""
    sizes: list[Any] = list(tensor.size())
    symbolic = [size for size in sizes if isinstance(size, torch.SymInt)]
    if not symbolic:
        return False
    free = importlib.import_module("torch.fx.experimental.symbolic_shapes").free_unbacked_symbols
    return any(free(size) for size in symbolic)


def with_lazy_bits(tensor: torch.Tensor, *, like: torch.Tensor) -> torch.Tensor:
    """Return a view that is conjugated and negated on reading where another tensor is."""
    if like.is_conj() != tensor.is_conj():
        tensor = torch._conj(tensor)
    if like.is_neg() != tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return tensor


COPY_TO_DEVICE = torch.ops.aten._to_copy.default
"""What ``tensor.to(device)`` is in a traced graph."""

copy_all: Callable[..., None] = torch._foreach_copy_
"""Copies tensors into others of the same sizes, in as few kernels as the device can do it in."""

storage_use_count: Callable[[int], int] = torch._C._storage_Use_Count
"""What `storage_uses` returns, by `storage_key`: for looking often."""


def backward_keeps_graph() -> bool:
    """Tell whether what was saved for the backward under way may be read once more: ``retain_graph=True``.

    True outside a backward, where nothing is known.
    """
    try:
        return bool(torch._C._autograd._get_current_graph_task_keep_graph())
    except (AttributeError, RuntimeError):
        return True


def tensor_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """Return a function of as many tensors that tells whether each looks like these: class, dtype, device, sizes,
    strides, and whether it is conjugated, negated, an inference tensor, or requires a gradient.

    It is Dynamo's own, in C++: a tenth of a microsecond a tensor. None where this torch has none, or where one tensor
    is passed twice, which it refuses.
    """
    guards = importlib.import_module("torch._C._dynamo.guards")
    if not hasattr(guards, "TensorGuards") or len({id(tensor) for tensor in tensors}) < len(tensors):
        return None
    try:
        guard = guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(tensor.size()) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )
    except (TypeError, RuntimeError):
        return None
    check: Callable[..., bool] = guard.check
    return check if check(*tensors) else None


def tensor_without_ownership(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor at the same address, with the same sizes and strides, that does not hold the memory."""
    storage = tensor.untyped_storage()
    bare: Any = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), tensor.device, storage.nbytes()
    )
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    view.set_(bare, tensor.storage_offset(), tensor.size(), tensor.stride())
    return with_lazy_bits(view, like=tensor)


def propagate_values(gm: Any, inputs: Sequence[Any]) -> None:
    """Give each node of a graph a fake tensor, or a number, that tells what its value looks like."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    # A size that depends on data becomes a symbol.
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [
        mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]
    FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)
