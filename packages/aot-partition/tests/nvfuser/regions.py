"""Functions as regions: traced, claimed and compiled by an executor that needs no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from aot_partition.nvfuser.claims import ClaimRules
from aot_partition.nvfuser.executor import NvFuserExecutor
from aot_partition.nvfuser.region import CompiledRegion
from aot_partition.nvfuser.testing.engines import ReferenceEngine
from aot_partition.nvprims import claim

CLAIMS = ClaimRules(devices=("cpu",), toolkit=True)


def reference_executor(
    engine: Any = None, draw_seed: Any = lambda device, distance: (11, 0)
) -> NvFuserExecutor:
    return NvFuserExecutor(engine or ReferenceEngine(), CLAIMS, draw_seed)


def graph_of(function: Callable[..., Any], inputs: Sequence[Any], mode: str = "fake") -> fx.GraphModule:
    gm = make_fx(function, tracing_mode=mode)(*inputs)
    gm.graph.output_node().args = (pytree.tree_leaves(gm.graph.output_node().args[0]),)
    gm.graph.eliminate_dead_code()
    return gm


def region_of(
    function: Callable[..., Any],
    *inputs: Any,
    executor: NvFuserExecutor | None = None,
    mode: str = "fake",
) -> CompiledRegion:
    """Compile a function of claimed operators as one region."""
    executor = executor or reference_executor()
    gm = graph_of(function, inputs, mode)
    refused = claim(gm, refuse=executor.refuse).refused
    refused = {node: why for node, why in refused.items() if isinstance(node.meta.get("val"), torch.Tensor)}
    assert refused == {}
    return executor.compile_region(gm, [])


def refusals(function: Callable[..., Any], *inputs: Any) -> list[str]:
    """Return why nodes of a function are refused."""
    return list(claim(graph_of(function, inputs), refuse=reference_executor().refuse).refused.values())


def operations(region: CompiledRegion) -> list[str]:
    assert region.translation is not None
    return region.translation.definition.operations


def check(function: Callable[..., Any], *inputs: Any, **how: Any) -> CompiledRegion:
    """Compare a region with eager PyTorch, in dtype, shape, strides and values."""
    region = region_of(function, *inputs, **how)
    got, wanted = list(region(list(inputs))), pytree.tree_leaves(function(*inputs))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, check_stride=True)
    return region
