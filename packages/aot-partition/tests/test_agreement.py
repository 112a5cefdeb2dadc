"""Ranks of a distributed run plan alike, though each measures other costs."""

from __future__ import annotations

import multiprocessing
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import fx, nn

from aot_partition.joint_graph import JointGraph
from aot_partition.memory.agreement import agree


def joint_graph(*, collective: bool, width: int = 4) -> JointGraph:
    graph = fx.Graph()
    x, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    y = graph.call_function(torch.ops.aten.exp.default, (x,))
    nodes = [x, tangent, y]
    if collective:
        nodes.append(graph.call_function(torch.ops._c10d_functional.all_reduce.default, (y, "sum", "0")))
    gradient = graph.call_function(torch.ops.aten.mul.Tensor, (tangent, nodes[-1]))
    for node in (*nodes, gradient):
        node.meta["val"] = torch.empty(width, device="meta")
    graph.output((nodes[-1], gradient))
    return JointGraph(fx.GraphModule(nn.Module(), graph), num_fwd_outputs=1)


def run_rank(rank: int, path: str, widths: tuple[int, int], collective: bool, results) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
        try:
            joint = joint_graph(collective=collective, width=widths[rank])
            costs = agree(joint, [(float(rank + 1), rank)] * len(joint))
            results.put((rank, costs[0]))
        finally:
            dist.destroy_process_group()
    except Exception as error:
        results.put((rank, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


def run(path, *, widths=(4, 4), collective=True):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [
        context.Process(target=run_rank, args=(rank, str(path), widths, collective, results))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(timeout=60)
    return found


@pytest.mark.slow
def test_all_ranks_take_the_costs_of_rank_0(tmp_path):
    assert run(tmp_path / "store") == {0: (1.0, 0), 1: (1.0, 0)}


@pytest.mark.slow
def test_without_collectives_nobody_waits(tmp_path):
    assert run(tmp_path / "store", collective=False) == {0: (1.0, 0), 1: (2.0, 1)}


@pytest.mark.slow
def test_other_graphs_are_an_error_on_every_rank(tmp_path):
    found = run(tmp_path / "store", widths=(4, 8))
    assert all("RanksDisagreeError" in text for text in found.values())


def test_alone_costs_are_what_they_are():
    joint = joint_graph(collective=True)
    costs = [(1.0, 2)] * len(joint)
    assert agree(joint, costs) is costs
