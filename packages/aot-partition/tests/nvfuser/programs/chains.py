"""Compile regions in which what indexes stands between arithmetic: nvFuser puts not everything in order beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aot_partition.nvfuser.claims import ClaimRules
from aot_partition.nvfuser.executor import NvFuserExecutor
from aot_partition.nvprims import claim

aten = torch.ops.aten
image = (2, 3, 6, 5)


def positions(limit: int, *shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64, device="cuda") + min(1, limit - 1)


def grid(x: torch.Tensor) -> torch.Tensor:
    return positions(3, *x.shape)


CHAINS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "reflection": (image, lambda x, i: aten.reflection_pad2d.default(x, [1, 2, 0, 3])),
    "replication": (image, lambda x, i: aten.replication_pad2d.default(x, [1, -1, 2, 0])),
    "nearest": (image, lambda x, i: aten.upsample_nearest2d.default(x, [9, 4])),
    "bilinear": (image, lambda x, i: aten.upsample_bilinear2d.default(x, [9, 4], False)),
    "bicubic": (image, lambda x, i: aten.upsample_bicubic2d.default(x, [9, 4], True)),
    "windows": (image, lambda x, i: aten.im2col.default(x, [2, 3], [1, 1], [1, 0], [2, 1])),
    "unpool": (image, lambda x, i: aten.max_unpool2d.default(x, grid(x), [9, 9])),
    "scatter": ((4, 6), lambda x, i: aten.scatter.src(x, 0, positions(4, 2, 6), x[:2] * 2)),
    "class": ((4, 6), lambda x, i: aten.scatter.value(x * 0, 1, i[:, None], -1.0)),
    "scatter into a view": (
        (4, 6),
        lambda x, i: aten.scatter.value(x.reshape(6, 4), 1, positions(4, 6, 2), 1.0),
    ),
    "strided": (
        (4, 6),
        lambda x, i: aten.as_strided_scatter.default(x, x[0, :4].reshape(2, 2), [2, 2], [1, 6]),
    ),
    "put": ((4, 6), lambda x, i: aten.index_put.default(x, [None, i[:2]], x[:, :2] + 1)),
    "put at two": ((4, 6), lambda x, i: aten.index_put.default(x, [i[:2], i[1:3]], x[0, :2])),
    "steps": ((4, 6), lambda x, i: aten.slice_scatter.default(x, x[:, :3].cos(), 1, 0, 6, 2)),
    "gather": ((4, 6), lambda x, i: aten.gather.default(x, 1, i.expand(4, 4))),
    "index": ((4, 6), lambda x, i: aten.index.Tensor(x, [None, i])),
    "flip": ((4, 6), lambda x, i: aten.flip.default(x, [0, 1])),
}


def between_arithmetic(chain: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def region(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        made = chain(x.sin() * 2, index)
        return [(made + 1).exp(), made.sum(0)]

    return region


def main() -> None:
    print(torch.cuda.get_device_name())
    executor = NvFuserExecutor(None, ClaimRules(), lambda device, distance: (1, 0))
    failed = 0
    for name, (shape, chain) in CHAINS.items():
        x = torch.zeros(shape, device="cuda")
        index = torch.ones(4, dtype=torch.int64, device="cuda")

        graph = make_fx(between_arithmetic(chain), tracing_mode="fake")(x, index)
        graph.graph.eliminate_dead_code()
        assert claim(graph, refuse=executor.refuse).refused == {}, name
        try:
            got = executor.compile_region(graph, [])([x, index])
        except Exception as error:
            failed += 1
            print(f"{name}: {str(error)[:1000]}")
            continue
        wanted = [node.meta["val"] for node in graph.graph.output_node().args[0]]
        assert [(a.shape, a.dtype, a.stride()) for a in got] == [
            (a.shape, a.dtype, a.stride()) for a in wanted
        ]
    print(f"{len(CHAINS)} chains, {failed} not compiled")


if __name__ == "__main__":
    main()
