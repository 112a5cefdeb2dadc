"""`ts_compile`: each kind of input, argument, literal and output, and that nothing is shared or dropped."""

from __future__ import annotations

import math
import operator
import threading
import weakref

import pytest
import torch
from torch import fx
from tracing import assert_same, aten, compiled, graph_of, traced

from aot_ts_fusion import UnknownFuserError, ts_compile

INT64_MIN = -(2**63)


# --- outputs -----------------------------------------------------------------------------------------------


def test_outputs_of_every_kind():
    def f(x, y):
        total = (x + y).sum()
        return [total, None, 3, (total, [x, 2.5]), {"a": y, "b": total}, True, "text", 1 + 2j]

    x, y = torch.randn(3), torch.randn(3)
    got = compiled(f, x, y)([x, y])
    assert_same(got, f(x, y))
    assert got[3][1][0] is x and got[4]["a"] is y
    assert got[0] is got[3][0] is got[4]["b"]


def test_a_graph_that_returns_one_value():
    x = torch.randn(3)
    assert_same(compiled(lambda x: x.sin(), x)([x]), x.sin())


def test_a_graph_that_computes_nothing():
    x = torch.randn(3)
    program = compiled(lambda x: (x, 1), x)
    assert program([x])[0] is x
    assert program.scripts == ()


def test_a_graph_without_inputs():
    assert_same(compiled(lambda: torch.ones(2))([]), torch.ones(2))


# --- literals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [math.inf, -math.inf, math.nan, -0.0, 1e-320, 3.0, 7, True, False, INT64_MIN, 2**63 - 1]
)
def test_numbers_are_written_exactly(number):
    dtype = {float: torch.float64, int: torch.int64, bool: torch.bool}[type(number)]
    gm = graph_of(
        (aten.full.default, lambda x: ([2], number)), (aten.full_like.default, lambda x: (x, number))
    )
    x = torch.zeros(2, dtype=dtype)
    full, like = ts_compile(gm, [x])([x])
    assert_same((full, like), gm(x))
    if isinstance(number, float) and number == 0.0:
        assert math.copysign(1.0, full[0].item()) == -1.0


@pytest.mark.parametrize("number", [1 + 2j, complex(math.inf, -0.0), 0j])
def test_complex_numbers(number):
    x = torch.randn(3, dtype=torch.complex64)
    gm = graph_of((aten.mul.Tensor, lambda x: (x, number)), (aten.full.default, lambda x: ([2], number)))
    assert_same(ts_compile(gm, [x])([x]), gm(x))


@pytest.mark.parametrize("number", [True, False])
@pytest.mark.parametrize(
    "overload", [aten.add.Tensor, aten.mul.Tensor, aten.eq.Scalar, aten.mul.Scalar, aten.div.Tensor]
)
def test_bool_is_a_scalar_of_its_own(overload, number):
    gm = graph_of((overload, lambda x: (x, number)))
    for x in (torch.tensor([True, False]), torch.tensor([0, 1]), torch.tensor([0.5, 1.0])):
        assert_same(ts_compile(gm, [x])([x]), gm(x))


def test_lists_of_numbers():
    x = torch.arange(4.0)
    gm = graph_of(
        (aten._foreach_mul.ScalarList, lambda x: ([x, x, x], [2.5, 2, True])),
        (aten.constant_pad_nd.default, lambda x: (x, [1, 2], -0.0)),
    )
    program = ts_compile(gm, [x])
    assert_same(program([x]), gm(x))


def test_devices_keep_their_index():
    gm = graph_of((aten.zeros.default, lambda x: ([2],)))
    node = gm.graph.find_nodes(op="call_function", target=aten.zeros.default)[0]
    node.kwargs = {"device": torch.device("cuda", 1), "dtype": torch.bfloat16, "layout": torch.strided}
    (script,) = ts_compile(gm, [torch.ones(1)]).scripts
    assert 'value="cuda:1"' in str(script.graph)


@pytest.mark.parametrize("value", [True, False, 0, -3, 2.5, float("nan")])
def test_numbers_that_are_read_from_tensors(value):
    x = torch.tensor(value)

    def f(x):
        number = x.item()
        return number, torch.zeros(2).fill_(number), torch.full((2,), number)

    program = compiled(f, x, symbolic=True)
    assert_same(program([x]), f(x))
    assert program.cut_out == 0


def test_memory_formats():
    x = torch.randn(1, 2, 3, 3)

    def f(x):
        return x.contiguous(memory_format=torch.channels_last), x.clone(memory_format=torch.preserve_format)

    assert_same(compiled(f, x)([x]), f(x))


def test_a_generator_runs_in_fx():
    graph = fx.Graph()
    x, given = graph.placeholder("x"), graph.placeholder("generator")
    drawn = graph.call_function(aten.rand.generator, ([3],), {"generator": given})
    graph.output((graph.call_function(aten.add.Tensor, (x, drawn)),))
    generator, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    program = ts_compile(fx.GraphModule({}, graph), [torch.zeros(3), generator])
    for _ in range(3):
        assert torch.equal(program([torch.zeros(3), generator])[0], torch.rand(3, generator=other))
    (decision,) = program.decisions
    assert (decision.subject, decision.action, decision.code) == ("rand_generator", "split", "unknown-type")


# --- inputs ------------------------------------------------------------------------------------------------


def test_numbers_as_inputs():
    x = torch.randn(3)
    graph = fx.Graph()
    given = [graph.placeholder(name) for name in ("x", "n", "a", "flag")]
    made = graph.call_function(aten.new_zeros.default, (given[0], [given[1]]))
    graph.output(
        (
            graph.call_function(aten.add.Tensor, (made, given[2])),
            graph.call_function(aten.mul.Tensor, (given[0], given[1])),
            graph.call_function(aten.full.default, ([2], given[2])),
            graph.call_function(aten.expand.default, (given[0], [given[1], 3])),
            graph.call_function(aten.mul.Scalar, (given[0], given[3])),
        )
    )
    gm = fx.GraphModule({}, graph)
    program = ts_compile(gm, [x, 4, 2.5, True])
    assert program.decisions == ()
    for n, a, flag in ((4, 2.5, True), (7, -math.inf, False)):
        assert_same(program([x, n, a, flag]), gm(x, n, a, flag))


@pytest.mark.parametrize("shape", [(2, 3), (5, 4), (1, 7)])
def test_symbolic_shapes_follow_the_inputs(shape):
    def f(x):
        n, m = x.shape
        return (
            x.reshape(-1),
            x.new_zeros(n * m, n + 1),
            torch.ones(n**2 // m + 1) * m,
            x / n,
            x.sum() / (n - m + 20),
            torch.arange(n % 4 + 1),
        )

    program = compiled(f, torch.randn(3, 5), symbolic=True)
    x = torch.randn(shape)
    assert_same(program([x]), f(x))
    assert program.decisions == ()


def test_tensors_of_the_graph_are_read_at_each_call():
    gm = traced(lambda x: x + torch.tensor([1.0, 2.0]), torch.zeros(2))
    (name,) = [node.target for node in gm.graph.nodes if node.op == "get_attr"]
    program = ts_compile(gm, [torch.zeros(2)])
    assert program([torch.zeros(2)]).tolist() == [1.0, 2.0]
    getattr(gm, name).mul_(10)
    assert program([torch.zeros(2)]).tolist() == [10.0, 20.0]
    setattr(gm, name, torch.tensor([5.0, 5.0]))
    assert program([torch.zeros(2)]).tolist() == [5.0, 5.0]


def test_inputs_are_freed_after_their_last_use():
    seen: list[bool] = []
    library = torch.library.Library("aot_ts_fusion_tests", "FRAGMENT")
    library.define("watch(Tensor x) -> Tensor")

    def watch(x):
        seen.append(alive() is not None)
        return x.clone()

    library.impl("watch", watch, "CompositeExplicitAutograd")
    watched = torch.ops.aot_ts_fusion_tests.watch.default
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(aten.sin.default, (x,))
    first = graph.call_function(watched, (y,))
    again = graph.call_function(aten.cos.default, (first,))
    graph.output((again,))
    program = ts_compile(fx.GraphModule({}, graph), [torch.ones(3)])
    arguments = [torch.ones(3)]
    alive = weakref.ref(arguments[0])
    program(arguments)
    assert arguments == [] and seen == [False]
    library._destroy()


def test_inputs_that_are_returned_or_used_later_are_kept():
    x, y = torch.randn(3), torch.randn(3)
    program = compiled(lambda x, y: ((x.sin() + y).cos() * x, y), x, y)
    expected = (x.sin() + y).cos() * x
    got = program([x, y])
    assert torch.equal(got[0], expected) and got[1] is y


def test_writes_to_inputs_are_made():
    def f(x, y):
        x.copy_(y * 2)
        y[0].add_(1)
        return x.sum()

    x, y = torch.zeros(3), torch.ones(3)
    program = compiled(f, x.clone(), y.clone())
    got = program([x, y])
    assert x.tolist() == [2.0, 2.0, 2.0] and y.tolist() == [2.0, 1.0, 1.0] and got.item() == 6.0


# --- nothing is shared, nothing is dropped -----------------------------------------------------------------


def test_a_copy_shares_no_memory():
    def f(x):
        copy = x.to(x.dtype, copy=True)
        return copy, x.clone(), aten._to_copy.default(x)

    x = torch.ones(3)
    program = compiled(f, x)
    for _ in range(4):
        for output in program([x]):
            output.add_(1)
    assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("fuser", [None, "fuser1", "fuser3"])
def test_a_tensor_that_the_graph_creates_is_new_in_each_call(fuser):
    def f(x):
        return torch.full((2,), 1.5), torch.zeros(2), torch.arange(2), torch.eye(2), x.clone(), x.clone()

    x = torch.ones(2)
    program = compiled(f, x, fuser=fuser)
    for _ in range(5):
        got = program([x])
        assert_same(got, f(x))
        for output in got:
            output.fill_(9)


def test_random_numbers_that_nothing_reads_are_drawn():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten.rand_like.default, (x,))
    graph.output((graph.call_function(aten.rand_like.default, (x,)),))
    program = ts_compile(fx.GraphModule({}, graph), [torch.ones(3)])
    torch.manual_seed(1)
    (got,) = program([torch.ones(3)])
    torch.manual_seed(1)
    torch.rand(3)
    assert torch.equal(got, torch.rand(3))


def test_checks_are_made():
    def f(x):
        return torch.linalg.cholesky(x), x * 2

    program = compiled(f, torch.eye(2))
    assert_same(program([torch.eye(2)]), f(torch.eye(2)))
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        program([-torch.eye(2)])
    assert [(each.subject, each.code) for each in program.decisions] == [("_linalg_check_errors", "effect")]
    assert (program.native, program.cut_out) == (4, 1)


def test_asserts_are_made():
    graph = fx.Graph()
    x = graph.placeholder("x")
    positive = graph.call_function(aten.all.default, (graph.call_function(aten.gt.Scalar, (x, 0)),))
    graph.call_function(aten._assert_async.msg, (positive, "must be positive"))
    graph.output((graph.call_function(aten.log.default, (x,)),))
    program = ts_compile(fx.GraphModule({}, graph), [torch.ones(2)])
    program([torch.ones(2)])
    with pytest.raises(RuntimeError, match="must be positive"):
        program([-torch.ones(2)])


# --- errors ------------------------------------------------------------------------------------------------


class OwnError(Exception):
    pass


@pytest.fixture
def failing_operator():
    library = torch.library.Library("aot_ts_fusion_tests", "FRAGMENT")
    library.define("fail(Tensor x) -> Tensor")

    def fail(x):
        raise OwnError("of mine", 3)

    library.impl("fail", fail, "CompositeExplicitAutograd")
    yield torch.ops.aot_ts_fusion_tests.fail.default
    library._destroy()


def test_an_exception_leaves_torchscript_as_it_is(failing_operator):
    program = ts_compile(graph_of((failing_operator, lambda x: (x,))), [torch.ones(2)])
    with pytest.raises(OwnError) as caught:
        program([torch.ones(2)])
    assert caught.value.args == ("of mine", 3)


def test_an_index_error_is_one():
    x, index = torch.randn(3), torch.tensor([5])
    gm = graph_of((aten.index_select.default, lambda x, i: (x, 0, i)), inputs=2)
    program = ts_compile(gm, [x, index])
    for run in (lambda: program([x, index]), lambda: gm(x, index)):
        with pytest.raises(IndexError, match=r"^index out of range in self$"):
            run()
    assert torch.equal(program([x, torch.tensor([2])])[0], x[2:])


def test_torchscript_of_others_goes_on_raising_as_it_did(failing_operator):
    program = ts_compile(graph_of((failing_operator, lambda x: (x,))), [torch.ones(2)])
    with pytest.raises(OwnError):
        program([torch.ones(2)])
    function = program.scripts[0]._function
    with pytest.raises(RuntimeError, match="TorchScript interpreter"):
        function([torch.ones(2)])


def test_a_call_that_failed_leaves_nothing_behind(failing_operator):
    gm = graph_of((failing_operator, lambda x: (x,)))
    program = ts_compile(gm, [torch.ones(2)])
    x = torch.ones(2)
    alive = weakref.ref(x)
    with pytest.raises(OwnError):
        program([x])
    del x
    assert alive() is None


def test_unknown_fusers_are_refused():
    with pytest.raises(UnknownFuserError, match="one of fuser0, fuser1, fuser2, fuser3, got 'nnc'"):
        compiled(lambda x: x, torch.ones(1), fuser="nnc")


def test_another_number_of_inputs_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        ts_compile(traced(lambda x: x + 1, torch.ones(1)), [])


# --- exactly the operator that was traced ------------------------------------------------------------------


def test_overloads_are_those_that_were_traced():
    x = torch.randn(4, 4)

    def f(x):
        largest, _ = x.max(0)
        return (
            x.pow(2),
            x.pow(x),
            x.sum(),
            x.sum(0),
            x.max(),
            largest,
            x.any(),
            x.std(0),
            x.norm(),
            x + 1,
            x + x,
        )

    gm = traced(f, x)
    program = ts_compile(gm, [x])
    assert_same(program([x]), f(x))
    found = str(program.scripts[0].graph)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            assert f"aten::{node.target.__name__.split('.')[0]}(" in found
    assert program.decisions == ()


# Kept: torch 2.10 can't take a library apart that has an operator without a default overload.
ambiguous = torch.library.Library("aot_ts_fusion_ambiguous", "DEF")
ambiguous.define("twice.first(Tensor x, int n) -> Tensor")
ambiguous.define("twice.second(Tensor x, int n) -> Tensor")
ambiguous.impl("twice.first", lambda x, n: x + n, "CompositeExplicitAutograd")
ambiguous.impl("twice.second", lambda x, n: x - n, "CompositeExplicitAutograd")


def test_an_operator_that_torchscript_would_confuse_runs_in_fx():
    """By the types of its arguments alone, TorchScript takes the overload that is registered first."""
    packet = torch.ops.aot_ts_fusion_ambiguous.twice
    gm = graph_of((packet.first, lambda x: (x, 1)), (packet.second, lambda x: (x, 1)))
    program = ts_compile(gm, [torch.zeros(1)])
    assert [each.tolist() for each in program([torch.zeros(1)])] == [[1.0], [-1.0]]
    assert [each.code for each in program.decisions] == ["other-overload"]


# --- threads -----------------------------------------------------------------------------------------------


def test_calls_from_threads_do_not_mix():
    program = compiled(lambda x, y: (x * 2 + y).sum(), torch.ones(64), torch.ones(64))
    wrong: list[float] = []

    def work(value: float) -> None:
        x = torch.full((64,), value)
        for _ in range(200):
            if program([x, x]).item() != 192 * value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
