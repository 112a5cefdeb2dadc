"""Writes to inputs, compared with what really changes when the function runs."""

from __future__ import annotations

import math
import operator
import os

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import aot_core
from aot_core.analysis import find_input_mutations, find_written_tensors

aten = torch.ops.aten


def through_view(a, b):
    a[0].view(2, 2).add_(1)
    return a + b


def through_part_of_list(a, b):
    parts = a.split(2)
    parts[1].zero_()
    return b * 2


def lists(a, b):
    torch._foreach_add_([a, b], 1.0)
    return a + b


def in_place_result(a, b):
    return a.add_(1).mul_(2)


def out_argument(a, b):
    return torch.add(a, a, out=b)


def copy_of_input(a, b):
    return a.clone().add_(b)


def results_of_foreach(a, b):
    results = torch._foreach_mul([a, b], 2.0)
    results[0].add_(1)
    return results


def set_then_written(a, b):
    with torch.no_grad():
        a.set_(b)
        a.add_(1)
    return a * 2


def norm_in_training(a, b):
    return torch.nn.functional.batch_norm(a, b[0], b[1].abs(), training=True)


def norm_in_evaluation(a, b):
    return torch.nn.functional.batch_norm(a, b[0], b[1].abs(), training=False)


def norm_statistics(a, b):
    return torch.batch_norm_update_stats(a, b[0], b[1], 0.1)


def unsafe_view(a, b):
    aten._unsafe_view.default(a, [16]).add_(1)
    return b


@pytest.mark.parametrize(
    "function",
    [
        through_view,
        through_part_of_list,
        lists,
        in_place_result,
        out_argument,
        copy_of_input,
        results_of_foreach,
        norm_in_training,
        norm_in_evaluation,
        norm_statistics,
        unsafe_view,
    ],
    ids=lambda function: function.__name__,
)
def test_agrees_with_what_changes(function):
    inputs = [torch.randn(4, 4), torch.randn(4, 4)]
    before = [value.clone() for value in inputs]
    graph = make_fx(function)(*[value.clone() for value in inputs])
    graph(*inputs)
    changed = [not torch.equal(one, other) for one, other in zip(before, inputs, strict=True)]

    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    written = {record.input for record in find_input_mutations(graph) if record.kind == "data"}
    assert [node in written for node in placeholders] == changed


def test_metadata_of_the_input_itself_and_not_of_a_view():
    def function(a, b):
        a.t_()
        b.view(-1).unsqueeze_(0)
        return a

    (record,) = find_input_mutations(make_fx(function)(torch.randn(2, 3), torch.randn(2, 3)))
    assert (record.input.name, record.kind, record.writer.target) == ("a_1", "metadata", aten.t_.default)


def test_a_tensor_set_to_another_takes_writes_there():
    records = find_input_mutations(make_fx(set_then_written)(torch.randn(4), torch.randn(4)))
    assert [(record.input.name, record.kind) for record in records] == [
        ("a_1", "storage"),
        ("a_1", "data"),
        ("b_1", "data"),
    ]


def test_the_source_line_is_that_of_the_write():
    graphs = []

    def compiler(gm, inputs):
        graphs.append(gm)
        return gm

    def program(a):
        a.mul_(2)
        return a + 1

    backend = aot_core.aot_autograd(name="collect", fw_compiler=compiler, keep_inference_input_mutations=True)
    torch.compile(program, backend=backend, fullgraph=True)(torch.ones(3))
    (record,) = find_input_mutations(graphs[0])
    assert record.writer.target is aten.copy_.default
    line = program.__code__.co_firstlineno + 1
    assert record.source == f"{os.path.basename(__file__)}:{line}"
    assert record.to_dict() == {
        "input": "arg0_1",
        "writer": record.writer.name,
        "operator": "aten.copy_.default",
        "argument": "self",
        "kind": "data",
        "caller": None,
        "source": record.source,
    }


def test_dropout_that_does_nothing_returns_its_argument():
    def function(a):
        torch.nn.functional.dropout(a, 0.5, training=False).add_(1)
        return a

    (record,) = find_input_mutations(make_fx(function, pre_dispatch=True)(torch.ones(3)))
    assert (record.input.name, record.kind) == ("a_1", "data")


def test_arithmetic_on_sizes_is_pure():
    def function(a):
        return a.view(a.shape[0] * 2, -1) + math.floor(a.shape[1] / 2)

    assert find_input_mutations(make_fx(function, tracing_mode="symbolic")(torch.ones(4, 6))) == ()


def branches():
    module = torch.nn.Module()
    module.then = make_fx(lambda a, b: (a.add_(1),))(torch.ones(4), torch.ones(4))
    module.other = make_fx(lambda a, b: (b + 1,))(torch.ones(4), torch.ones(4))
    graph = fx.Graph()
    test, a, b = (graph.placeholder(name) for name in ("test", "a", "b"))
    view = graph.call_function(aten.view.default, (a, [-1]))
    graphs = (graph.get_attr("then"), graph.get_attr("other"))
    call = graph.call_function(torch.ops.higher_order.cond, (test, *graphs, (view, b)))
    result = graph.call_function(operator.getitem, (call, 0))
    graph.output(graph.call_function(aten.mul_.Tensor, (result, 2)))
    return fx.GraphModule(module, graph)


def test_branches_are_looked_into_and_their_results_followed():
    first, second = find_input_mutations(branches())
    assert (first.input.name, first.writer.target, first.caller.name) == ("a", aten.add_.Tensor, "cond")
    assert (second.input.name, second.writer.target, second.caller) == ("a", aten.mul_.Tensor, None)


def test_an_unknown_higher_order_operator_is_reported():
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    call = graph.call_function(
        torch.ops.higher_order.triton_kernel_wrapper_mutation, (), {"kwargs": {"x": a}}
    )
    graph.output((call, b))
    (record,) = find_input_mutations(graph)
    assert (record.input.name, record.kind) == ("a", "possible")


@pytest.mark.parametrize(
    ("op", "target", "arguments"),
    [
        ("call_method", "add_", (1,)),
        ("call_function", torch.add, (1,)),
        ("call_function", operator.setitem, (0, 1)),
        ("call_function", operator.iadd, (1,)),
        ("call_function", aten.add, (1,)),
        ("call_module", "missing", ()),
    ],
)
def test_what_has_no_schema_is_refused_by_name(op, target, arguments):
    graph = fx.Graph()
    node = graph.create_node(op, target, (graph.placeholder("a"), *arguments), name="suspect")
    graph.output(node)
    with pytest.raises(aot_core.UnanalysedOperationError, match="suspect"):
        find_input_mutations(graph)


def call_of(target, *names, **constants):
    """Return a graph with one call of an operator, whose arguments of these names are placeholders."""
    graph = fx.Graph()
    nodes = {name: graph.placeholder(name) for name in names}
    arguments = []
    for argument in target._schema.arguments:
        if argument.name in nodes:
            arguments.append(nodes[argument.name])
        elif argument.name in constants:
            arguments.append(constants[argument.name])
        else:
            arguments.append(argument.default_value)
    graph.output(graph.call_function(target, tuple(arguments)))
    return graph


STATISTICS = ("running_mean", "running_var")
ATEN_NORM = {"momentum": 0.1, "eps": 1e-5}
LIBRARY_NORM = {"exponential_average_factor": 0.1, "epsilon": 1e-5}
NORMS = [
    (aten.native_batch_norm.default, {**ATEN_NORM, "training": True}, STATISTICS),
    (aten.native_batch_norm.default, {**ATEN_NORM, "training": False}, ()),
    (aten.cudnn_batch_norm.default, {**LIBRARY_NORM, "training": True}, STATISTICS),
    (aten.cudnn_batch_norm.default, {**LIBRARY_NORM, "training": False}, ()),
    (aten.miopen_batch_norm.default, {**LIBRARY_NORM, "training": True}, STATISTICS),
    (aten.batch_norm_update_stats.default, {"momentum": 0.1}, STATISTICS),
    (aten._native_batch_norm_legit.default, {**ATEN_NORM, "training": True}, STATISTICS),
]


@pytest.mark.parametrize(("target", "constants", "expected"), NORMS)
def test_running_statistics_of_every_batch_norm(target, constants, expected):
    # Those of CUDA's libraries can't run here; what they write is in their documentation: the running statistics.
    graph = call_of(target, "input", "weight", "bias", *STATISTICS, **constants)
    assert tuple(record.input.name for record in find_input_mutations(graph)) == expected


def tensors_written(op, args, kwargs):
    """Run an operator and return which of its tensors have other values afterwards."""
    leaves = [
        leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    before = [leaf.clone() for leaf in leaves]
    op(*args, **kwargs)
    return [leaf for leaf, old in zip(leaves, before, strict=True) if not torch.equal(leaf, old)]


def calls():
    x, y = torch.randn(4, 3), torch.rand(2, 3)
    norm = (x, None, None, y[0], y[1], True, 0.1, 1e-5)
    return {
        "in place": (aten.add_.Tensor, (x, 1), {}),
        "result argument": (aten.add.out, (x, x), {"out": torch.zeros(4, 3)}),
        "lists": (aten._foreach_mul_.Scalar, ([x, y], 2.0), {}),
        "two results": (
            aten.sort.values,
            (x,),
            {"values": torch.ones(4, 3), "indices": torch.ones(4, 3).long() * 9},
        ),
        "hidden": (aten.native_batch_norm.default, norm, {}),
        "hidden, off": (aten.native_batch_norm.default, (*norm[:5], False, 0.1, 1e-5), {}),
        "hidden, unknown to torch": (aten.batch_norm_update_stats.default, (x, y[0], y[1], 0.1), {}),
        "none": (aten.sin.default, (x,), {}),
    }


@pytest.mark.parametrize("name", calls())
def test_written_tensors_are_those_that_change(name):
    op, args, kwargs = calls()[name]
    predicted = find_written_tensors(op, args, kwargs)
    changed = tensors_written(op, args, kwargs)
    assert [id(tensor) for tensor in predicted] == [id(tensor) for tensor in changed]
