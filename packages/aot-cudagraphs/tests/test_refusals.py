"""The table of refusals, asked about calls and about nodes."""

from __future__ import annotations

import re

import pytest
import torch
import torch._prims.rng_prims
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from aot_cudagraphs import refusal_of_call, refusal_of_node
from aot_cudagraphs.refusal_table import RULES
from aot_cudagraphs.refusals import named_refusal

aten = torch.ops.aten
x = torch.ones(4)


def on_device(tensor):
    return False


REFUSED = [
    (aten._local_scalar_dense.default, (x[0],), {}, "host-read"),
    (aten.equal.default, (x, x), {}, "host-read"),
    (aten.nonzero.default, (x,), {}, "data-dependent-shape"),
    (aten.masked_select.default, (x, x > 0), {}, "data-dependent-shape"),
    (aten.repeat_interleave.Tensor, (torch.ones(4, dtype=torch.int64),), {}, "output-size-unknown"),
    (aten.index.Tensor, (x, [x > 0]), {}, "mask-index"),
    (aten.index_put_.default, (x, [x > 0], x[0]), {}, "mask-index"),
    (aten.masked_fill.Tensor, (x, x > 0, x[0]), {}, "value-read-on-host"),
    (aten.index_fill.int_Tensor, (x, 0, x.long(), x[0]), {}, "value-read-on-host"),
    (aten.cholesky.default, (torch.eye(2),), {}, "values-checked-on-host"),
    (aten.linalg_inv_ex.default, (torch.eye(2),), {"check_errors": True}, "values-checked-on-host"),
    (aten.masked_scatter_backward.default, (x, x > 0, [4]), {}, "data-dependent-shape"),
    (aten.normal.Tensor_Tensor, (x, x), {}, "values-checked-on-host"),
    (aten.searchsorted.Tensor, (x, x), {"sorter": x.long()}, "values-checked-on-host"),
    (aten.multinomial.default, (x, 2), {}, "values-checked-on-host"),
    (aten.histc.default, (x,), {}, "range-read-on-host"),
    (aten.isin.Tensor_Tensor, (x, torch.ones(99)), {}, "uses-unique"),
    (aten.mode.default, (torch.ones(4000),), {}, "host-algorithm"),
    (aten._linalg_svd.default, (torch.ones(2, 2),), {}, "host-algorithm"),
    (aten.lift_fresh.default, (x,), {}, "pageable-copy"),
    (aten._to_sparse.default, (x,), {}, "sparse-layout"),
    (aten.add.Tensor, (torch.ones(2).to_sparse(), 1), {}, "sparse-layout"),
]
ACCEPTED = [
    (aten.add.Tensor, (x, x), {}),
    (aten.index.Tensor, (x, [x.long()]), {}),
    (aten.repeat_interleave.Tensor, (torch.ones(4, dtype=torch.int64),), {"output_size": 4}),
    (aten.masked_fill.Scalar, (x, x > 0, 1.0), {}),
    (aten.searchsorted.Tensor, (x, x), {}),
    (aten.linalg_inv_ex.default, (torch.eye(2),), {}),
    (aten.multinomial.default, (x, 2, True), {}),
    (aten.histc.default, (x, 10, 0, 1), {}),
    (aten.isin.Tensor_Tensor, (x, torch.ones(3)), {}),
    (aten.mode.default, (x,), {}),
    (aten.native_batch_norm.default, (torch.ones(2, 3), None, None, None, None, True, 0.1, 1e-5), {}),
]


@pytest.mark.parametrize(("op", "args", "kwargs", "code"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_with_a_code(op, args, kwargs, code):
    refusal = refusal_of_call(op, args, kwargs, is_host=on_device)
    assert (refusal.op, refusal.code) == (str(op), code)


@pytest.mark.parametrize(("op", "args", "kwargs"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_accepted(op, args, kwargs):
    assert refusal_of_call(op, args, kwargs, is_host=on_device) is None


def test_a_host_scalar_is_accepted_and_a_host_vector_is_not():
    host, device = torch.ones(()), torch.ones((), device="meta")
    assert refusal_of_call(aten.add.Tensor, (device, host), {}) is None
    assert refusal_of_call(aten.add.Tensor, (device, x), {}).code == "pageable-copy"


def test_copies_to_the_host():
    device = torch.ones(4, device="meta")
    assert refusal_of_call(aten.copy_.default, (torch.ones(()), device), {}).code == "copy-to-host"
    assert refusal_of_call(aten._to_copy.default, (device,), {"device": "cpu"}).code == "copy-to-host"
    assert refusal_of_call(aten._to_copy.default, (device,), {"dtype": torch.float64}) is None


def test_every_rule_says_why_and_what_to_do():
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.code)
        assert rule.reason[0].islower() and not rule.reason.endswith(".")
        assert rule.remedy[0].isupper() and rule.remedy.endswith(".")


def test_what_is_not_an_operator_is_refused_by_name():
    refusal = named_refusal("host-random-state", "torch.get_rng_state")
    assert (refusal.op, refusal.code) == ("torch.get_rng_state", "host-random-state")


def test_nodes_are_told_by_the_values_that_tracing_left():
    def function(a, mask):
        return a[mask.long()].sum() + torch.masked_select(a, mask).sum()

    # A mask that is traced with real values: symbolic shapes of unknown size are not what is tested here.
    graph = make_fx(function)(torch.ones(4), torch.ones(4, dtype=torch.bool)).graph
    codes = {}
    for node in graph.nodes:
        refusal = refusal_of_node(node, is_host=on_device)
        if refusal is not None:
            codes[str(node.target)] = refusal.code
    assert codes == {"aten.masked_select.default": "data-dependent-shape"}


def test_a_node_that_makes_a_host_tensor_would_not_be_run_again():
    graph = make_fx(lambda a: a + torch.rand(()))(torch.ones(4)).graph
    codes = [refusal_of_node(node) for node in graph.nodes]
    assert "host-work" in [refusal.code for refusal in codes if refusal is not None]


def test_the_graph_inside_a_higher_order_operator_is_looked_into():
    inner = make_fx(lambda a: torch.masked_select(a, a > 0).sum())(torch.ones(4))
    module = torch.nn.Module()
    module.inner = inner
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    call = graph.call_function(torch.ops.higher_order.invoke_subgraph, (graph.get_attr("inner"), "inner", a))
    graph.output(call)
    torch.fx.GraphModule(module, graph)
    assert refusal_of_node(call, is_host=on_device).code == "data-dependent-shape"


def test_control_flow_by_value_is_refused():
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    call = graph.call_function(torch.ops.higher_order.cond, (a, None, None, (a,)))
    assert refusal_of_node(call).code == "host-control-flow"


def traced_on_cuda(function, *inputs):
    """Trace with fake tensors on a device that need not exist; return the codes of refused nodes, by operator."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = [torch.empty(shape, device=device, dtype=dtype) for shape, device, dtype in inputs]
        graph = make_fx(function)(*fakes).graph
    codes = {}
    for node in graph.nodes:
        refusal = refusal_of_node(node)
        if refusal is not None:
            codes[str(node.target)] = refusal.code
    return codes


VECTOR = ((3,), "cuda", torch.float32)
HOST_VECTOR = ((3,), "cpu", torch.float32)
HOST_SCALAR = ((), "cpu", torch.float32)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: x * 2 + 1, [VECTOR], {}),
        (lambda x, scale: x * scale, [VECTOR, HOST_SCALAR], {}),
        (lambda x: x.to("cpu"), [VECTOR], {"aten._to_copy.default": "copy-to-host"}),
        (
            lambda host: aten._to_copy.default(host, device="cuda"),
            [HOST_VECTOR],
            {"aten._to_copy.default": "pageable-copy"},
        ),
        (lambda x, host: host.copy_(x), [VECTOR, HOST_VECTOR], {"aten.copy_.default": "pageable-copy"}),
        (lambda x, scale: x * (scale + 1), [VECTOR, HOST_SCALAR], {"aten.add.Tensor": "host-work"}),
        (lambda x: x + torch.rand((), device="cpu"), [VECTOR], {"aten.rand.default": "host-work"}),
        (lambda x, scale: x.masked_fill(x > 0, scale), [VECTOR, HOST_SCALAR], {}),
        (
            lambda x: x.masked_fill(x > 0, x.sum()),
            [VECTOR],
            {"aten.masked_fill.Tensor": "value-read-on-host"},
        ),
    ],
)
def test_devices_are_told_apart_without_a_device(function, inputs, expected):
    assert traced_on_cuda(function, *inputs) == expected


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("run_and_save_rng_state", "host-random-state"),
        ("run_with_rng_state", "host-random-state"),
        ("while_loop", "host-control-flow"),
    ],
)
def test_higher_order_operators_that_need_the_host(name, code):
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    call = graph.call_function(getattr(torch.ops.higher_order, name), (aten.rand.default, a))
    assert refusal_of_node(call).code == code


def test_a_random_operator_with_a_graphs_own_state_is_accepted():
    graph = torch.fx.Graph()
    state = graph.placeholder("state")
    call = graph.call_function(
        torch.ops.higher_order.graphsafe_run_with_rng_state, (aten.rand.default, [3]), {"rng_state": state}
    )
    assert refusal_of_node(call) is None
