"""Entries that make tensors of numbers alone, and those that draw random numbers."""

from __future__ import annotations

import torch
from torch import fx

from aot_partition.nvprims.common_rules import all_of, dense_result, floating
from aot_partition.nvprims.entry import Kind, Nvprim, call_arguments, overloads

__all__ = ["ENTRIES"]


def _default_generator(node: fx.Node) -> str | None:
    return "a generator of its own" if call_arguments(node).get("generator") is not None else None


def _floating_result(node: fx.Node) -> str | None:
    value = node.meta["val"]
    made = value if isinstance(value, torch.Tensor) else value[0]
    return None if made.is_floating_point() else f"random numbers of dtype {made.dtype}"


def _random(name: str, *suffixes: str, integers: bool = False) -> Nvprim:
    rules = (dense_result, _default_generator, *(() if integers else (_floating_result,)))
    rule = all_of(*rules)
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
        rule=dense_result,
    ),
    _random("rand"),
    _random("randn"),
    _random("rand_like"),
    _random("randn_like"),
    _random("randint", "default", "low", integers=True),
    _random("randint_like", "default", "low_dtype", integers=True),
    _random("normal", "Tensor_Tensor", "Tensor_float", "float_Tensor", "float_float"),
    *(_random(name) for name in ("cauchy", "exponential", "geometric", "log_normal")),
    _random("rrelu_with_noise_functional"),
    Nvprim(
        "dropout",
        overloads("native_dropout"),
        Kind.RANDOM,
        recomputable=False,
        rule=all_of(floating, _floating_result),
    ),
)
"""Constants, ranges and random numbers."""
