"""What TorchScript can't express runs in FX, between two TorchScript functions, and nothing else does."""

from __future__ import annotations

import operator
import weakref

import torch
from torch import fx
from tracing import assert_same, aten, compiled, traced

import aot_core
from aot_core import aot_autograd
from aot_ts_fusion import ts_compile


def test_only_the_operation_itself_is_cut_out():
    def f(x):
        y = torch.linalg.inv(x.sin() + 3 * torch.eye(3))
        return (y @ x).relu(), y.cos()

    x = torch.randn(3, 3)
    program = compiled(f, x)
    assert_same(program([x]), f(x))
    assert [each.subject for each in program.decisions] == ["_linalg_check_errors"]
    assert [step.function is None for step in program.steps] == [False, True, False]
    assert program.cut_out == 1


def test_a_reason_names_the_line_of_the_program():
    backend = aot_autograd(name="torchscript_under_test", fw_compiler=ts_compile)

    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1

    with aot_core.record_reports() as reports:
        torch.compile(f, backend=backend)(torch.eye(3))
    (decision,) = [each for each in reports[0].decisions if each.action == "split"]
    assert (decision.stage, decision.code) == ("inference", "higher-order")
    assert decision.source.startswith("test_partitions.py:")


def test_higher_order_operators_run_in_fx():
    backend = aot_autograd(name="torchscript_under_test", fw_compiler=ts_compile)

    def f(x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() + 1, (x.exp(),))
        return y + 1

    with aot_core.record_reports() as reports:
        run = torch.compile(f, backend=backend)
        for x in (torch.ones(3), -torch.ones(3)):
            torch.testing.assert_close(run(x), f(x))
    splits = [each for each in reports[0].decisions if each.action == "split"]
    assert [each.code for each in splits] == ["higher-order"]


def test_several_values_of_an_operation_in_fx():
    graph = fx.Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(torch.frexp, (x,))
    mantissa = graph.call_function(operator.getitem, (pair, 0))
    later = graph.call_function(aten.sin.default, (x,))
    exponent = graph.call_function(operator.getitem, (pair, 1))
    mantissa.meta["val"], exponent.meta["val"] = torch.ones(1), torch.ones(1, dtype=torch.int32)
    product = graph.call_function(aten.mul.Tensor, (mantissa, exponent))
    graph.output((graph.call_function(aten.add.Tensor, (product, later)),))
    gm = fx.GraphModule({}, graph)
    x = torch.tensor([3.0, 0.1])
    program = ts_compile(gm, [x])
    assert_same(program([x]), gm(x))
    assert (program.native, program.cut_out) == (3, 3)


def test_a_submodule_runs_in_fx():
    root = torch.nn.Module()
    root.linear = torch.nn.Linear(2, 2)
    graph = fx.Graph()
    x = graph.placeholder("x")
    called = graph.call_module("linear", (graph.call_function(aten.sin.default, (x,)),))
    called.meta["val"] = torch.ones(2, 2)
    graph.output((graph.call_function(aten.cos.default, (called,)),))
    gm = fx.GraphModule(root, graph)
    x = torch.randn(2, 2)
    with torch.no_grad():
        assert_same(ts_compile(gm, [x])([x]), gm(x))


def test_values_between_two_steps_are_freed():
    freed: list[bool] = []
    watched: list[weakref.ref[torch.Tensor]] = []

    def watch(x):
        watched.append(weakref.ref(x))
        return x.clone()

    def look(x):
        freed.append(watched[0]() is None)
        return x.clone()

    graph = fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(aten.sin.default, (x,))
    first = graph.call_function(watch, (made,))
    first.meta["val"] = torch.ones(2)
    second = graph.call_function(look, (graph.call_function(aten.cos.default, (first,)),))
    graph.output((second,))
    program = ts_compile(fx.GraphModule({}, graph), [torch.ones(2)])
    program([torch.ones(2)])
    assert freed == [True]


def test_the_graph_is_not_changed():
    def f(x):
        return torch.linalg.inv(x), torch.full((2,), 1.0)

    gm = traced(f, torch.eye(2))
    code, forward = gm.code, gm.forward
    ts_compile(gm, [torch.eye(2)])
    assert gm.code == code and gm.forward == forward
    assert_same(gm(torch.eye(2)), f(torch.eye(2)))
