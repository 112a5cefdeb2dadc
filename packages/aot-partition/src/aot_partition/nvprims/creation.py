"""Entries that make tensors of numbers alone, and those that draw random numbers."""

from __future__ import annotations

import torch
from torch import fx

from aot_partition.nvprims.common_rules import all_of, dense_result, floating
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads

__all__ = ["ENTRIES"]


def _integer_steps(node: fx.Node) -> str | None:
    made = node.meta["val"]
    return None if made.dtype in (torch.int64, torch.int32) else f"steps of dtype {made.dtype}"


def _default_generator(node: fx.Node) -> str | None:
    return "a generator of its own" if call_arguments(node).get("generator") is not None else None


def _floating_result(node: fx.Node) -> str | None:
    value = node.meta["val"]
    made = value if isinstance(value, torch.Tensor) else value[0]
    return None if made.is_floating_point() else f"random numbers of dtype {made.dtype}"


def _random(name: str, *suffixes: str) -> Nvprim:
    rule = all_of(dense_result, _default_generator, _floating_result)
    return Nvprim(name, overloads(name, *suffixes), Kind.RANDOM, recomputable=False, rule=rule)


ENTRIES = (
    *(
        Nvprim(name, overloads(name), Kind.CREATE, rule=dense_result)
        for name in ("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor")
    ),
    *(
        Nvprim(name, overloads(name), Kind.CREATE, rule=dense_result)
        for name in ("new_full", "new_zeros", "new_ones")
    ),
    Nvprim(
        "iota",
        (*overloads("arange", "start_step"), torch.ops.prims.iota.default),
        Kind.CREATE,
        rule=all_of(dense_result, _integer_steps),
    ),
    _random("rand"),
    _random("randn"),
    _random("rand_like"),
    _random("randn_like"),
    Nvprim(
        "dropout",
        overloads("native_dropout"),
        Kind.RANDOM,
        recomputable=False,
        rule=all_of(floating, _floating_result),
    ),
)
"""Constants, ranges and random numbers."""
