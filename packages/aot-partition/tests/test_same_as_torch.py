"""``cost_model="torch"``: the graphs of torch's own partitioner, node for node."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from programs import random_program
from torch._functorch import config
from traced import copy_of, corpus, saved_names, trace

from aot_partition import min_cut_partition
from aot_partition.joint_graph import JointGraph
from aot_partition.mincut.activation_budget import ActivationBudgets, saved_as_torch

SMALL = [
    ("transformer", 2), ("llama", 1), ("t5", 2), ("bert", 1), ("vit", 1),
    ("resnet", 2), ("densenet", 7), ("lstm", 4), ("scan", 30),
]  # fmt: skip
FORMS = {"plain": {}, "decomposed": {"decomposed": True}, "dynamic": {"dynamic": True}}


@functools.cache
def captured(model, depth, **form):
    """Return a joint graph of the corpus; no test changes it, as `assert_same` checks."""
    capture = corpus()
    return capture.capture(capture.Case(model, depth, **form))


def text(gm):
    return [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes]


def assert_same(module, options, joint_inputs=None):
    theirs = min_cut_rematerialization_partition(copy_of(module), joint_inputs, **options)
    before = text(module)
    ours = min_cut_partition(module, joint_inputs, cost_model="torch", **options)
    assert text(module) == before, "the joint graph is the caller's"
    assert saved_names(ours[0], options) == saved_names(theirs[0], options)
    for mine, his in zip(ours, theirs, strict=True):
        assert text(mine) == text(his)
        mine.graph.lint()


# Dynamo traces the dynamic ones, which takes seconds each: one in the default run.
CASES = [
    pytest.param(model, form, marks=[pytest.mark.sweep] if form == "dynamic" and model != "llama" else [])
    for model, _ in SMALL
    for form in FORMS
]


@pytest.mark.parametrize(("model", "form"), CASES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_small_corpus(model, form):
    joint = captured(model, dict(SMALL)[model], **FORMS[form])
    assert_same(joint.module, dict(joint.options))


@pytest.mark.parametrize("budget", [0.5, 0.1, 0.0])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_with_torchs_activation_budget(budget):
    joint = captured("llama", 1)
    with config.patch(activation_memory_budget=budget):
        assert_same(joint.module, dict(joint.options))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_budgets_of_one_graph():
    """What budgets have in common is found once; each gives what it gives alone."""
    joint = captured("llama", 1)
    read = JointGraph(joint.module, **joint.options)
    budgets = ActivationBudgets(read)
    found = {budget: budgets.saved(budget) for budget in (0.1, 1.0, 0.9, 0.0, 0.3, 0.5)}
    assert found == {budget: saved_as_torch(read, budget=budget) for budget in found}
    assert len({tuple(saved) for saved in found.values()}) > 3


@pytest.mark.parametrize("budget", [0.5, 0.0])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_statistics_of_batch_norms_are_not_saved(budget):
    """torch saves them to recompute a batch norm with, though the forward has overwritten them."""
    joint = captured("resnet", 2)
    options = dict(joint.options)
    read = JointGraph(joint.module, **options)
    written = {node.name for node, is_written in zip(read.nodes, read.is_written, strict=True) if is_written}
    with config.patch(activation_memory_budget=budget):
        theirs, _ = min_cut_rematerialization_partition(copy_of(joint.module), None, **options)
        ours, _ = min_cut_partition(joint.module, cost_model="torch", **options)
    expected = [name for name in saved_names(theirs, options) if name not in written]
    assert saved_names(ours, options) == expected != saved_names(theirs, options)


@pytest.mark.parametrize(
    "setting",
    [
        {"ban_recompute_used_far_apart": False},
        {"ban_recompute_long_fusible_chains": False},
        {"ban_recompute_materialized_backward": False},
        {"ban_recompute_not_in_allowlist": False},
        {"ban_recompute_reductions": False},
        {"aggressive_recomputation": True},
        {"recompute_views": True},
        {"treat_parameters_as_free_to_save": False},
        {"max_dist_from_bw": 3},
    ],
    ids=lambda setting: next(iter(setting)),
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_with_torchs_other_settings(setting):
    joints = captured("vit", 1), captured("scan", 60)
    with config.patch(setting):
        for joint in joints:
            assert_same(joint.module, dict(joint.options))


def check_random_programs(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        function, inputs = random_program(rng)
        traced = trace(function, *inputs)
        if not any(x.requires_grad for x in inputs):
            continue
        assert_same(traced.module, traced.options)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_random_programs(seed):
    check_random_programs(seed, 12)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_many_random_programs(seed):
    check_random_programs(seed, 1000)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_own_operators_replace_torchs_list():
    def function(x, w):
        return ((x @ w).relu() * x.sin()).exp()

    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    traced = trace(function, *inputs)
    joint = JointGraph(traced.module, **traced.options)
    with_all = {joint.nodes[i].name for i in saved_as_torch(joint)}
    without = {joint.nodes[i].name for i in saved_as_torch(joint, recomputable_ops=frozenset())}
    only_sin = {
        joint.nodes[i].name for i in saved_as_torch(joint, recomputable_ops=frozenset({torch.ops.aten.sin}))
    }
    assert with_all != without
    assert "sin" in without and "sin" not in only_sin
