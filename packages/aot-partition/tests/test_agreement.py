"""Ranks of a distributed run plan alike, though each measures other costs."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
import torch.distributed as dist
from torch import fx, nn

from aot_partition.errors import RanksDisagreeError
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


def run_rank(rank: int, path: str, results) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
        joint = joint_graph(collective=True)
        results.put((rank, agree(joint, [(float(rank + 1), rank)] * len(joint))[0]))
        # Nobody leaves while another is still joining.
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        results.put((rank, f"{type(error).__name__}: {error}"))


@pytest.mark.slow
def test_all_ranks_take_the_costs_of_rank_0(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    path = str(tmp_path / "store")
    ranks = [context.Process(target=run_rank, args=(rank, path, results), daemon=True) for rank in range(2)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(timeout=60)
    assert found == {0: (1.0, 0), 1: (1.0, 0)}


@pytest.fixture
def two_ranks(monkeypatch):
    """This process takes itself for rank 0 of 2."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    return monkeypatch


def test_without_collectives_nobody_waits(two_ranks):
    two_ranks.setattr(dist, "all_gather_object", lambda *_: pytest.fail("waits for the other rank"))
    joint = joint_graph(collective=False)
    costs = [(1.0, 2)] * len(joint)
    assert agree(joint, costs) is costs


def test_another_graph_on_another_rank_is_an_error(two_ranks):
    gathered = []

    def gather(everyone, mine):
        gathered.append(mine)
        everyone[0], everyone[1] = mine, gathered[0]

    two_ranks.setattr(dist, "all_gather_object", gather)
    one, other = joint_graph(collective=True, width=4), joint_graph(collective=True, width=8)
    agree(one, [(1.0, 2)] * len(one))
    with pytest.raises(RanksDisagreeError, match=r"ranks \[1\]"):
        agree(other, [(1.0, 2)] * len(other))


def test_alone_costs_are_what_they_are():
    joint = joint_graph(collective=True)
    costs = [(1.0, 2)] * len(joint)
    assert agree(joint, costs) is costs
