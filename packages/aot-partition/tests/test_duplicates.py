"""What is merged as a common subexpression, and what only looks equal."""

from __future__ import annotations

import pytest
import torch
from traced import trace

from aot_partition import min_cut_partition
from aot_partition.joint_graph import JointGraph


@pytest.mark.parametrize("cost_model", ["eager", "torch"])
def test_zeros_of_either_sign_are_two_numbers(cost_model):
    """torch's own pass merges them, and the second result is inf as well."""

    def f(x):
        return x / torch.full((2,), 0.0), x / torch.full((2,), -0.0)

    x = torch.ones(2, requires_grad=True)
    traced = trace(f, x)
    forward, _ = min_cut_partition(traced.module, None, cost_model=cost_model, **traced.options)
    one, other = forward(x.detach())[:2]
    assert one.tolist() == [float("inf")] * 2 and other.tolist() == [float("-inf")] * 2


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        (1, 1, True),
        (0.5, 0.5, True),
        (0.0, 0.0, True),
        (1, 2, False),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
    ],
)
@pytest.mark.parametrize("where", ["argument", "list", "keyword"])
def test_numbers(one, other, merged, where):
    aten = torch.ops.aten
    graph = torch.fx.Graph()
    x = graph.placeholder("primals_1")
    tangent = graph.placeholder("tangents_1")
    results = []
    for number in (one, other):
        if where == "argument":
            results.append(graph.call_function(aten.mul.Scalar, (x, number)))
        elif where == "list":
            results.append(graph.call_function(aten._foreach_mul.ScalarList, ([x], [number])))
        else:
            results.append(graph.call_function(aten.add.Tensor, (x, x), {"alpha": number}))
    for node in (x, tangent, *results):
        node.meta["val"] = torch.empty(2, device="meta")
    # Outputs stay apart, so that something has to stand between.
    graph.output((*(graph.call_function(aten.neg.default, (node,)) for node in results), tangent))
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.meta["val"] = torch.empty(2, device="meta")
    joint = JointGraph(torch.fx.GraphModule({}, graph), num_fwd_outputs=2)
    assert (results[1] in joint.twins) == merged
