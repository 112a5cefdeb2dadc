"""Keep a check from leaving anything behind, and anything that was there from reaching it."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator

import torch

__all__ = ["isolated"]


@contextlib.contextmanager
def isolated(seed: int, device: torch.device) -> Iterator[None]:
    """Seed all generators and take PyTorch's defaults; on leaving, put back what was there.

    Covered are the generators of PyTorch (CPU and ``device``) and of `random`, grad mode, default dtype,
    determinism, autocast of the CPU and of ``device``, and Dynamo's caches, which are emptied before and
    after.

    Warnings are ignored inside: compiling makes PyTorch itself warn, and a test suite that turns warnings
    into errors would blame the backend.
    """
    python_state = random.getstate()
    default_dtype = torch.get_default_dtype()
    grad_mode = torch.is_grad_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    kinds = {"cpu", device.type}
    autocast = {kind: torch.is_autocast_enabled(kind) for kind in kinds}
    devices = [device] if device.type == "cuda" else []
    torch.compiler.reset()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=devices):
        warnings.simplefilter("ignore")
        random.seed(seed)
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)
        for kind in kinds:
            torch.set_autocast_enabled(kind, False)
        try:
            yield
        finally:
            random.setstate(python_state)
            torch.set_default_dtype(default_dtype)
            torch.set_grad_enabled(grad_mode)
            torch.use_deterministic_algorithms(deterministic)
            for kind, enabled in autocast.items():
                torch.set_autocast_enabled(kind, enabled)
            torch.compiler.reset()
