"""Random numbers that depend on the step, not on who else drew some in between."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import torch

__all__ = ["isolated_rng", "seed_step"]


@contextlib.contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Seed torch's and Python's generators for a block, and put back what they were afterwards.

    Covers the CPU and, where they are CUDA or XPU, all accelerators.
    """
    python_state = random.getstate()
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device_type, devices = "cuda", 0
    if accelerator is not None and accelerator.type in ("cuda", "xpu"):
        device_type, devices = accelerator.type, torch.accelerator.device_count()
    with torch.random.fork_rng(devices=range(devices), device_type=device_type):
        try:
            _seed(seed)
            yield
        finally:
            random.setstate(python_state)


def seed_step(seed: int, step: int) -> None:
    """Start a step's stream of random numbers.

    A stream per step rather than one per run: a contender that draws more or fewer numbers than eager in
    one step still begins the next one with eager's.
    """
    _seed(seed * 1_000_003 + step)


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed & 0xFFFF_FFFF_FFFF)
