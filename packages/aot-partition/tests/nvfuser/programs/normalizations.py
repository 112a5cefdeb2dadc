"""Compile normalizations over dimensions of size 1 and others: nvFuser takes some of them away and adds them again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aot_partition.nvfuser.claims import ClaimRules
from aot_partition.nvfuser.executor import NvFuserExecutor
from aot_partition.nvprims import claim

aten = torch.ops.aten


def normalized(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    variance, mean = aten.var_mean.correction(x, dims, correction=0, keepdim=True)
    return (x - mean) * (variance + 1e-5).rsqrt()


def softmax(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    exponentials = (x - aten.amax.default(x, dims, True)).exp()
    return exponentials / aten.sum.dim_IntList(exponentials, dims, True)


NORMALIZATIONS = [
    (normalize, shape, dims)
    for normalize in (normalized, softmax)
    for shape, dims in [
        ([2, 3], [1]),
        ([2, 1, 3, 1], [2, 3]),
        ([1, 2, 3, 1], [0, 2, 3]),
        ([2, 1, 3], [1, 2]),
        ([1, 6, 1], [0, 1, 2]),
    ]
]


def region(
    normalize: Callable[[torch.Tensor, list[int]], torch.Tensor], shape: list[int], dims: list[int]
) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    return lambda x: [aten.view.default(normalize(aten.view.default(x, shape), dims), [2, 3]) * 2]


def main() -> None:
    print(torch.cuda.get_device_name())
    executor = NvFuserExecutor(None, ClaimRules(), lambda device, distance: (1, 0))
    failed = 0
    for normalize, shape, dims in NORMALIZATIONS:
        name = f"{normalize.__name__} over {dims} of {shape}"
        x = torch.zeros(2, 3, device="cuda")
        graph = make_fx(region(normalize, shape, dims), tracing_mode="fake")(x)
        graph.graph.eliminate_dead_code()
        assert claim(graph, refuse=executor.refuse).refused == {}, name
        try:
            (got,) = executor.compile_region(graph, [])([x])
        except Exception as error:
            failed += 1
            print(f"{name}: {str(error)[:1000]}")
            continue
        assert got.shape == x.shape, f"{name}: {got.shape}"
    print(f"{len(NORMALIZATIONS)} normalizations, {failed} not compiled")


if __name__ == "__main__":
    main()
