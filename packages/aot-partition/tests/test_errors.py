"""Bad input: errors that name what happened and what to do."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy
from traced import run_with, trace

import aot_partition
from aot_partition import MinCutPartitioner, min_cut_partition
from aot_partition.errors import (
    ContradictoryTagsError,
    InvalidBudgetError,
    MissingMetadataError,
    NotDifferentiableError,
    TangentOutputError,
    UnboundedCutError,
    UnknownOperatorError,
)
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.network import Network

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

MUST_SAVE, MUST_RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE


def model(x):
    return torch.nn.functional.layer_norm(x.sin(), (4,)).exp()


def traced_model():
    return trace(model, torch.randn(4, 4, requires_grad=True))


def partition(traced, **options):
    return min_cut_partition(traced.module, None, **{**traced.options, **options})


def test_missing_metadata():
    traced = traced_model()
    del traced.node("sin").meta["val"]
    with pytest.raises(MissingMetadataError, match=r"'sin' \(aten.sin.default\).*no meta\['val'\]"):
        partition(traced)


@pytest.mark.parametrize(("whole", "part"), [(MUST_SAVE, MUST_RECOMPUTE), (MUST_RECOMPUTE, MUST_SAVE)])
@pytest.mark.parametrize("cost_model", ["eager", "torch"])
def test_a_tuple_and_its_part_tagged_against_each_other(whole, part, cost_model):
    traced = traced_model()
    traced.node("native_layer_norm").meta["recompute"] = whole
    traced.node("getitem").meta["recompute"] = part
    message = rf"'native_layer_norm' is tagged {whole.name}, and its part 'getitem' {part.name}"
    with pytest.raises(ContradictoryTagsError, match=message):
        partition(traced, cost_model=cost_model)


def test_unbounded():
    """The message names each constraint on the way."""
    traced = traced_model()
    joint = JointGraph(traced.module, **traced.options)
    network = Network(joint)
    network.recomputing_costs(1, math.inf, "it is random")
    network.saving_costs(1, math.inf, "it is not a tensor")
    network.backward_reads(1, "the backward returns it")
    with pytest.raises(UnboundedCutError, match=r"it is random; .*not a tensor; .*the backward returns it"):
        network.saved()


def test_unbounded_towards_the_backward():
    """The way ends at what only the backward can compute, although all of that is one vertex of the network."""
    traced = traced_model()
    joint = JointGraph(traced.module, **traced.options)
    last, user = next(
        (i, user)
        for i, users in enumerate(joint.users)
        for user in users
        if joint.in_forward[i] and joint.in_tangent_closure[user]
    )
    network = Network(joint)
    network.recomputing_costs(last, math.inf, "it is random")
    network.saving_costs(last, math.inf, "it is not a tensor")
    network.users_read(last)
    one, other = joint.nodes[last].name, joint.nodes[user].name
    message = (
        rf"along {one} -> {other} \('{one}': it is random; .*'{other}': only the backward can compute it\)"
    )
    with pytest.raises(UnboundedCutError, match=message):
        network.saved()


def test_tags_of_inputs_have_no_meaning():
    traced = traced_model()
    traced.node("primals_1").meta["recompute"] = MUST_RECOMPUTE
    forward, _ = partition(traced)
    assert "primals_1" in {node.name for node in forward.graph.nodes}


def test_unknown_operators():
    with pytest.raises(UnknownOperatorError, match=r"got 'aten.relu' \(str\)"):
        partition(traced_model(), recomputable_ops={"aten.relu"})
    with pytest.raises(UnknownOperatorError, match="got <built-in method relu"):
        partition(traced_model(), recomputable_ops={torch.relu})


def test_not_differentiable():
    graph = torch.fx.Graph()
    x = graph.placeholder("primals_1")
    x.meta["val"] = torch.empty(2, device="meta")
    graph.output((x,))
    module = torch.fx.GraphModule({}, graph)
    with pytest.raises(NotDifferentiableError, match="1 outputs, of which num_fwd_outputs=1"):
        min_cut_partition(module, num_fwd_outputs=1)


def test_an_output_that_is_a_tangent_or_made_of_one():
    traced = traced_model()
    output = traced.module.graph.output_node()
    (results,) = output.args
    output.args = ((traced.node("tangents_1"), *results[1:]),)
    with pytest.raises(TangentOutputError, match=r"Output 0 of the forward.* is 'tangents_1'"):
        partition(traced)
    output.args = ((results[1], *results[1:]),)
    with pytest.raises(TangentOutputError, match=r"tangents_1 -> .* -> mul"):
        partition(traced)
    # Told that the gradient is the forward's too, it is as impossible.
    traced = traced_model()
    with pytest.raises(TangentOutputError, match="Check num_fwd_outputs=2"):
        partition(traced, num_fwd_outputs=2)


@pytest.mark.parametrize("budget", [-1, 1.5, "lots", "6 GB of it", float("nan"), True])
def test_budgets_that_mean_nothing(budget):
    with pytest.raises(InvalidBudgetError, match="budget="):
        partition(traced_model(), budget=budget)


def test_torchs_rules_take_no_budget():
    with pytest.raises(InvalidBudgetError, match=r"takes no budget, got 0\.5"):
        partition(traced_model(), budget=0.5, cost_model="torch")


@pytest.mark.parametrize(
    "error", [getattr(aot_partition, name) for name in aot_partition.__all__ if name.endswith("Error")]
)
def test_errors_name_their_page_and_survive_pickling(error):
    made = error("What happened.")
    assert str(made) == f"What happened. See errors/{error.slug()}"
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is error and str(again) == str(made)


def test_identity_of_inductors_partitioner_covers_all_options():
    ops = {torch.ops.aten.sin, torch.ops.aten.cos}
    partitioners = [
        MinCutPartitioner(),
        MinCutPartitioner(budget=0.5, cost_model="eager"),
        MinCutPartitioner(budget=0.4, cost_model="eager"),
        MinCutPartitioner(cost_model="eager"),
        MinCutPartitioner(recomputable_ops=ops),
        MinCutPartitioner(recomputable_ops={torch.ops.aten.sin}),
    ]
    identities = [each.uuid() for each in partitioners]
    assert len(set(identities)) == len(identities)
    assert MinCutPartitioner(recomputable_ops=list(ops)[::-1]).uuid() == identities[4]
    assert aot_partition.__version__ in identities[0]
    assert MinCutPartitioner(cost_model=lambda node: 0.0).uuid() is None


def test_a_function_as_cost_model_is_weighed_against_bytes():
    def function(x):
        return (x.sin().exp() * x).cos()

    def cost(of_exp):
        return lambda node: of_exp if node.target is torch.ops.aten.exp.default else 0.0

    x = torch.randn(64, 64, requires_grad=True)

    def again(seconds):
        def partition_fn(module, joint_inputs, **options):
            return min_cut_partition(module, joint_inputs, cost_model=seconds, **options)

        *_, (_, backward) = run_with(partition_fn, function, x)
        return "exp" in {node.name for node in backward.graph.nodes if node.op == "call_function"}

    assert again(cost(0.0)), "16 KiB are worth more than no time"
    assert not again(cost(1.0)), "and less than a second"
