"""What Python can do to a tensor or a generator without any operator running, refused while capturing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aot_cudagraphs.refusals import Refusal, named_refusal

__all__ = ["host_calls_refused"]

Refuse = Callable[[Refusal], Any]

_COPIES = {
    torch.Tensor.cpu: "Tensor.cpu",
    torch.Tensor.numpy: "Tensor.numpy",
    torch.Tensor.tolist: "Tensor.tolist",
    torch.Tensor.__array__: "Tensor.__array__",
}
# Read the numbers of a tensor argument on the host, without an operator that a dispatch mode would see.
_READS_SECOND = {torch.tensor_split: "torch.tensor_split", torch.Tensor.tensor_split: "Tensor.tensor_split"}
_STATE_FUNCTIONS = ("get_rng_state", "set_rng_state", "manual_seed", "initial_seed", "seed")


@contextlib.contextmanager
def host_calls_refused(refuse: Refuse) -> Iterator[None]:
    """Call ``refuse``, which raises, where this thread copies to the host or touches random state on the host.

    Only one thread captures at a time, see `aot_cudagraphs.simulator.recorder`. Others are let through.
    """
    with _random_state_refused(refuse), _CopiesRefused(refuse):
        yield


class _CopiesRefused(TorchFunctionMode):
    def __init__(self, refuse: Refuse) -> None:
        super().__init__()
        self.refuse = refuse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _COPIES:
            self.refuse(named_refusal("host-copy", _COPIES[func]))
        if func in _READS_SECOND and any(isinstance(value, torch.Tensor) for value in args[1:]):
            self.refuse(named_refusal("host-copy", _READS_SECOND[func]))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _random_state_refused(refuse: Refuse) -> Iterator[None]:
    # These are plain functions, of which no mode of torch hears.
    capturing = threading.get_ident()
    originals = {name: getattr(torch.random, name) for name in _STATE_FUNCTIONS}

    def guarded(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == capturing:
                refuse(named_refusal("host-random-state", f"torch.{name}"))
            return originals[name](*args, **kwargs)

        return call

    replaced = [(module, name) for module in (torch, torch.random) for name in _STATE_FUNCTIONS]
    for module, name in replaced:
        setattr(module, name, guarded(name))
    try:
        yield
    finally:
        for module, name in replaced:
            setattr(module, name, originals[name])
