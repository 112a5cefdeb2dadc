"""Graphs for the tests, and what is compared in them."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from aot_ts_fusion import Program, ts_compile

aten = torch.ops.aten


def traced(function: Any, *inputs: Any, symbolic: bool = False) -> fx.GraphModule:
    """Trace a function to ATen."""
    return make_fx(function, tracing_mode="symbolic" if symbolic else "real")(*inputs)


def compiled(function: Any, *inputs: Any, symbolic: bool = False, **options: Any) -> Program:
    """Trace and compile a function."""
    return ts_compile(traced(function, *inputs, symbolic=symbolic), list(inputs), **options)


def graph_of(*calls: Any, inputs: int = 1, values: Any = ()) -> fx.GraphModule:
    """Make a graph of one call after another, each on the inputs: ``(target, make_args)``; it returns all results."""
    graph = fx.Graph()
    placeholders = [graph.placeholder(f"x{i}") for i in range(inputs)]
    for node, value in zip(placeholders, values, strict=False):
        node.meta["val"] = value
    results = [graph.call_function(target, make_args(*placeholders)) for target, make_args in calls]
    graph.output(tuple(results))
    return fx.GraphModule({}, graph)


def assert_same(got: Any, expected: Any) -> None:
    """Compare values, structures and types; tensors bit by bit."""
    ours, our_structure = pytree.tree_flatten(got)
    theirs, their_structure = pytree.tree_flatten(expected)
    assert our_structure == their_structure
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
            assert torch.equal(one.nan_to_num(7.5), other.nan_to_num(7.5))
        else:
            assert one == other or (one != one and other != other)
