"""Which nodes are claimed, and why others are not."""

from __future__ import annotations

import re

import pytest
import torch
from claimed import graph_of, only
from torch import fx
from traced import trace

from aot_partition import UnknownOperatorError, min_cut_partition
from aot_partition.nvprims import NVPRIMS, Kind, claim, nvprim_of, recomputable_ops
from aot_partition.nvprims.marks import is_marked, mark_, marked_claims

aten = torch.ops.aten
f32 = torch.ones(4, 6)
i64 = torch.ones(4, 6, dtype=torch.int64)
index = torch.zeros(4, 6, dtype=torch.int64)


def verdict(function, *inputs, target=None, **options) -> str:
    """Return why a call is refused, or "claimed"."""
    gm = graph_of(function, *inputs, decompositions={})
    claims = claim(gm, **options)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    node = nodes[0] if target is None else only(gm, target)
    return claims.refused.get(node, "claimed")


def test_every_entry_has_an_operator_and_no_operator_two_entries():
    assert all(entry.targets for entry in NVPRIMS.values())
    targets = [target for entry in NVPRIMS.values() for target in entry.targets]
    assert len(targets) == len(set(targets))
    assert all(nvprim_of(target).name in NVPRIMS for target in targets)


CLAIMED = {
    "add": (aten.add.Tensor, f32, f32),
    "add of numbers": (lambda x: aten.add.Tensor(x, 2), f32),
    "integers": (aten.mul.Tensor, i64, i64),
    "two dtypes": (aten.mul.Tensor, f32, i64),
    "bfloat16": (aten.exp.default, f32.bfloat16()),
    "eight dimensions": (aten.exp.default, f32.reshape(1, 1, 1, 1, 1, 1, 4, 6)),
    "a cast": (lambda x: aten._to_copy.default(x, dtype=torch.float64), f32),
    "a sum": (lambda x: aten.sum.dim_IntList(x, [1]), f32),
    "a variance": (lambda x: aten.var.correction(x, [0], correction=0), f32),
    "parts of a value of several": (lambda x: torch.var_mean(x, 0)[1], f32),
    "a slice": (lambda x: aten.slice.Tensor(x, 1, 1, 3), f32),
    "whole division of integers": (lambda x: aten.div.Tensor_mode(x, x, rounding_mode="trunc"), i64),
    "floored division": (lambda x: aten.div.Tensor_mode(x, x, rounding_mode="floor"), f32),
    "integer powers": (aten.pow.Tensor_Tensor, i64, i64),
    "negative padding": (lambda x: aten.constant_pad_nd.default(x, [-1, 0]), f32),
    "decimals": (lambda x: aten.round.decimals(x, decimals=2), f32),
    "indexing": (lambda x, i: aten.index.Tensor(x, [None, i[0, :2]]), f32, index),
    "a gather": (lambda x, i: aten.gather.default(x, 1, i), f32, index),
    "an embedding": (aten.embedding.default, f32, index),
    "concatenation": (lambda x: aten.cat.default([x, x], 1), f32),
    "padding": (lambda x: aten.constant_pad_nd.default(x, [1, 2]), f32),
    "a range": (lambda x: aten.arange.start_step(0, 6, 2) + x[0, 0], f32),
    "a range of floats": (lambda x: aten.arange.start_step(0.0, 1.0, 0.5) + x[0, 0], f32),
    "an image": (lambda x: aten.upsample_nearest2d.default(x[None, None], [8, 8]), f32),
    "a border": (lambda x: aten.reflection_pad1d.default(x, [1, 2]), f32),
    "integers that are drawn": (lambda x: aten.randint.default(9, [4]) + x[:, 0], f32),
    "a constant": (lambda x: aten.full.default([3], 1.0) + x[0, 0], f32),
    "dropout": (lambda x: aten.native_dropout.default(x, 0.5, True)[0], f32),
    "expanded strides": (aten.exp.default, f32[:1].expand(4, 6)),
    "a number on the CPU": (aten.add.Tensor, torch.ones(4, device="meta"), torch.tensor(2.0)),
    "a write to an input": (lambda x, y: (aten.copy_.default(x, y), y)[1], f32.clone(), f32),
}
REFUSED = {
    "complex": (aten.exp.default, f32.to(torch.complex64), "dtype complex64"),
    "bytes": (aten.add.Tensor, f32.byte(), f32.byte(), "dtype uint8"),
    "halves of bytes": (aten.neg.default, f32.to(torch.int8), "dtype int8"),
    "nine dimensions": (aten.exp.default, f32.reshape([1] * 7 + [4, 6]), "more than 8 dimensions"),
    "no elements": (aten.exp.default, f32[:0], "a tensor without elements"),
    "sparse": (aten.neg.default, f32.to_sparse(), "is not a plain tensor|layout"),
    "a fractional correction": (lambda x: aten.var.correction(x, [0], correction=0.5), f32, "correction 0.5"),
    "a step": (lambda x: aten.slice.Tensor(x, 1, 0, 6, 2), f32, "step 2"),
    "two devices": (lambda x: aten._to_copy.default(x, device="meta"), f32, "two devices"),
    "parts of several dtypes": (lambda x, y: aten.cat.default([x, y]), f32, i64, "parts of several dtypes"),
    "a product": (lambda x: aten.mm.default(x, x.t()), f32, "claimed only with matmul=True"),
    "a convolution": (
        lambda x, w: aten.convolution.default(x, w, None, [1], [0], [1], False, [0], 1),
        torch.ones(1, 2, 5),
        torch.ones(2, 2, 3),
        "not in the op set",
    ),
    "in place": (lambda x: aten.add_.Tensor(x, 1), f32.clone(), "not in the op set"),
    "a write to something else": (
        lambda x, y: aten.copy_.default(aten.clone.default(x), y),
        f32,
        f32,
        "something else than an input",
    ),
    "a write of another dtype": (lambda x, y: (aten.copy_.default(x, y), y)[1], f32.clone(), i64, "converts"),
}


@pytest.mark.parametrize("name", CLAIMED)
def test_claimed(name):
    function, *inputs = CLAIMED[name]
    gm = graph_of(function, *inputs, decompositions={})
    assert claim(gm).refused == {}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, *inputs, reason = REFUSED[name]
    gm = graph_of(function, *inputs, decompositions={})
    found = list(claim(gm).refused.values())
    assert any(re.search(reason, each) for each in found), found


@pytest.mark.parametrize(
    "skip", ["aten.exp", "aten.exp.default", "torch.ops.aten.exp", aten.exp, aten.exp.default]
)
def test_operators_that_the_user_skips(skip):
    assert verdict(aten.exp.default, f32, skip_ops=[skip]) == "named in skip_ops"
    assert verdict(aten.sin.default, f32, skip_ops=[skip]) == "claimed"


@pytest.mark.parametrize("skip", ["aten.expp", "exp", torch.exp, 3])
def test_a_name_that_is_no_operator(skip):
    with pytest.raises(UnknownOperatorError, match="skip_ops expects"):
        claim(graph_of(aten.exp.default, f32), skip_ops=[skip])


def test_products_are_claimed_on_request():
    function = lambda x: aten.mm.default(x, x.t())  # noqa: E731
    assert verdict(function, f32, target=aten.mm.default, allow=["matmul"]) == "claimed"
    assert "matmul" in verdict(function, f32, target=aten.mm.default, allow=["linear"])
    assert "dtype" in verdict(function, i64, target=aten.mm.default, allow=["matmul"])
    with pytest.raises(UnknownOperatorError, match="among matmul, linear, sdpa"):
        claim(graph_of(function, f32), allow=["conv"])


def test_an_executor_has_the_last_word():
    gm = graph_of(lambda x: torch.var_mean(x.exp(), 0)[0], f32)
    asked = []

    def refuse(node):
        asked.append(node.name)
        return "too deep" if "var" in node.name else None

    claims = claim(gm, refuse=refuse, skip_ops=["aten.exp"])
    assert asked == ["var_mean"]
    assert set(claims.refused.values()) == {"named in skip_ops", "too deep"}
    assert {node.name for node in claims.refused} == {"exp", "var_mean", "getitem", "getitem_1"}


def test_symbolic_sizes_are_not_guarded():
    gm = graph_of(lambda x: x.view(-1).exp().sum(), torch.ones(5, 7), mode="symbolic")
    values = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    shape_env = values[0].fake_mode.shape_env
    guards = len(shape_env.guards)
    claims = claim(gm)
    assert len(shape_env.guards) == guards
    assert {"exp", "sum_1"} <= {node.name for node in claims}


def test_decisions_name_operator_reason_count_and_source():
    def function(x):
        return aten.mm.default(x, x) + aten.mm.default(x, aten.mm.default(x, x))

    decisions = claim(trace(function, torch.ones(3, 3, requires_grad=True)).module).decisions()
    (decision,) = (each for each in decisions if each.subject == "aten.mm.default")
    assert (decision.action, decision.code, decision.stage) == ("refuse", "not-claimed", "partition")
    assert "matmul=True; 9 nodes, first mm" in decision.detail


def test_what_may_be_recomputed():
    ops = recomputable_ops()
    assert {aten.add.Tensor, aten.full.default, aten.view.default} <= ops
    assert not {aten.sum.dim_IntList, aten.native_dropout.default, aten.mm.default, aten.gather.default} & ops
    assert all(entry.recomputable for entry in NVPRIMS.values() if entry.kind is Kind.MOVE)


def test_marks_come_along_when_a_graph_is_cut():
    traced = trace(lambda x: (x.exp() @ x).sin(), torch.ones(3, 3, requires_grad=True))
    claims = claim(traced.module)
    halves = min_cut_partition(traced.module, **traced.options)
    forward, backward = halves
    for half in halves:
        assert not is_marked(half.graph, by="a")
        mark_(half.graph, claims, by="a")
        assert is_marked(half.graph, by="a") and not is_marked(half.graph, by="b")

    def never(gm):
        raise AssertionError("a marked graph is claimed again")

    for half in (forward, backward):
        kept = marked_claims(half, by="a", judge=never)
        fresh = claim(half)
        assert {n.name: e for n, e in kept.claimed.items()} == {n.name: e for n, e in fresh.claimed.items()}
        assert {n.name: r for n, r in kept.refused.items()} == {n.name: r for n, r in fresh.refused.items()}
    # What a node was turned into since is not what was claimed.
    only(forward, aten.exp.default).target = aten.mish.default
    changed = marked_claims(forward, by="a", judge=never)
    assert "exp" in {node.name for node in changed.refused}
    assert (
        marked_claims(forward, by="b", judge=claim).refused[only(forward, aten.mish.default)]
        == "not in the op set"
    )


def test_a_node_without_metadata():
    graph = fx.Graph()
    node = graph.call_function(aten.exp.default, (graph.placeholder("x"),))
    graph.output(node)
    assert "meta['val']" in claim(fx.GraphModule(torch.nn.Module(), graph)).refused[node]
