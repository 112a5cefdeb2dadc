"""Whose random numbers a graph draws, and from what state.

A model on an XLA device draws from that device's state, as it does uncompiled; ``torch_xla.manual_seed`` sets it.
A model that lives elsewhere knows nothing of such a state: it follows torch's own generator, of which each call
takes one number as the seed on XLA. So ``torch.manual_seed`` repeats it, and the device's state is left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aot_xla import _compat
from aot_xla.device import Device

__all__ = ["draws_at_home", "is_random", "seeded_from_torch"]

# 0 and 1 are constants to XLA rather than data, and would each make another computation.
_SMALLEST_SEED, _LARGEST_SEED = 2, 2**62


def is_random(node: fx.Node) -> bool:
    """Tell whether a node draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in _compat.tags_of(node.target):
        return False
    # Attention has the tag for a dropout that is mostly off.
    return bool(_compat.argument(node, "dropout_p") != 0.0)


def draws_at_home(gm: fx.GraphModule, device: Device) -> bool:
    """Tell whether a graph draws random numbers that the trace promised from another device than XLA."""
    return any(is_random(node) and not _is_on(node.meta.get("val"), device) for node in gm.graph.nodes)


def _is_on(value: Any, device: Device) -> bool:
    first = next((x for x in _compat.pytree.tree_leaves(value) if isinstance(x, torch.Tensor)), None)
    return first is not None and device.holds(first)


@contextlib.contextmanager
def seeded_from_torch(device: Device) -> Iterator[None]:
    """Take a number from torch's generator as the seed on the device; put the device's state back at the end."""
    seed = int(torch.randint(_SMALLEST_SEED, _LARGEST_SEED, (), device="cpu"))
    before = device.random_state()
    device.set_random_state(seed)
    try:
        yield
    finally:
        device.set_random_state(before)
