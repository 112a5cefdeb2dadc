"""Faults of torch's own wrapper, and of its forerunners, that must not exist here.

Each test runs on both wrappers. Where torch still has the fault, its case is an expected failure: proof that
the test can fail. ``strict=False``, since later releases of torch mend one or the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd as torch_aot_autograd
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

import aot_core
from aot_core.debug import aot_core_eager

Wrapper = Callable[..., Any]


def torch_wrapper(*, name: str, **kwargs: Any) -> Any:
    return torch_aot_autograd(**kwargs)


def on_both(*, fault_in_torch: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "wrap",
        [
            pytest.param(aot_core.aot_autograd, id="aot_core"),
            pytest.param(
                torch_wrapper, id="torch", marks=pytest.mark.xfail(reason=fault_in_torch, strict=False)
            ),
        ],
    )


def as_is(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return aot_core.boxed(lambda args: gm(*args))


def tiny_graph(constant: float = 2.0) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x: (x * constant,))


def state_of(backend: Any) -> dict[str, Any]:
    return {name: dict(v) if isinstance(v, dict) else v for name, v in vars(backend).items()}


@on_both(fault_in_torch="the wrapper's shared keyword arguments grow")
def test_a_compile_leaves_the_backend_as_it_was(wrap: Wrapper) -> None:
    backend = wrap(name="x", fw_compiler=as_is, decompositions=dict)
    before = state_of(backend)
    backend(tiny_graph(), [torch.ones(2, requires_grad=True)])
    assert state_of(backend) == before


@on_both(fault_in_torch="the caller's compiler object is wrapped in place")
def test_a_callers_compiler_is_not_touched(wrap: Wrapper) -> None:
    class Output:
        pass

    compiler = SerializableAOTDispatchCompiler(Output, as_is)
    backend = wrap(name="x", fw_compiler=as_is, bw_compiler=compiler)
    backend(tiny_graph(), [torch.ones(2, requires_grad=True)])
    assert compiler.compiler_fn is as_is


def test_a_callers_table_options_and_graph_are_not_touched() -> None:
    table: dict[Any, Any] = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    options = {"strict": False}
    graph = tiny_graph()
    before = dict(table), dict(options), graph.code, dict(graph.meta)
    backend = aot_core.aot_autograd(name="x", fw_compiler=as_is, decompositions=table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        backend(graph, [torch.ones(2, requires_grad=True)], options=options)
    assert (table, options, graph.code, graph.meta) == before


@on_both(fault_in_torch="a callable table is asked once and frozen")
def test_decompositions_are_not_frozen(wrap: Wrapper) -> None:
    asked = []
    backend = wrap(name="x", fw_compiler=as_is, decompositions=lambda: asked.append(1) or {})
    for _ in range(3):
        backend(tiny_graph(), [torch.ones(2)])
    assert len(asked) == 3


@on_both(fault_in_torch="a serializable compiler is wrapped once per graph")
def test_wrapping_does_not_deepen_over_a_thousand_graphs(
    wrap: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_the_backward_compiler(gm: Any, inputs: Any, *, bw_compiler: Any, **kwargs: Any) -> Any:
        return bw_compiler(gm, inputs)

    # Tracing a thousand graphs would take a minute, and wraps nothing.
    monkeypatch.setattr("aot_core._compat.compile_with_aot_autograd", only_the_backward_compiler)
    monkeypatch.setattr("torch._dynamo.backends.common.aot_module_simplified", only_the_backward_compiler)
    depths = []

    def backward_compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        depths.append(stack_depth())

        def run(args: list[Any]) -> Any:
            depths.append(stack_depth())
            return gm(*args)

        return aot_core.boxed(run)

    compiler = SerializableAOTDispatchCompiler(object, backward_compiler)
    backend = wrap(name="x", fw_compiler=as_is, bw_compiler=compiler)
    graph = tiny_graph()
    for _ in range(1000):
        backend(graph, [torch.ones(2)])([torch.ones(2)])
    assert len(depths) == 2000
    assert (depths[0], depths[1]) == (depths[-2], depths[-1])


def stack_depth() -> int:
    import sys

    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def test_two_backends_do_not_see_each_other() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            seen.append(name)
            return as_is(gm, inputs)

        return aot_core.aot_autograd(name=name, fw_compiler=compiler)

    one, other = named("one"), named("other")
    for backend in (one, other, one, other):
        backend(tiny_graph(), [torch.ones(2, requires_grad=True)])
    assert seen == ["one", "one", "other", "other"] * 2


def test_sixteen_threads_through_one_backend() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(4, 4, dtype=torch.float64) for _ in range(16)]
    results: dict[int, torch.Tensor] = {}
    start = threading.Barrier(16)

    def train(index: int) -> None:
        weight = weights[index].clone().requires_grad_()

        # A function of its own per thread: sixteen compiles, not sixteen calls of one.
        def loss(w: torch.Tensor) -> torch.Tensor:
            return (w @ w.t() * (index + 1)).sin().sum()

        compiled = torch.compile(loss, backend=aot_core_eager)
        start.wait()
        compiled(weight).backward()
        assert weight.grad is not None
        results[index] = weight.grad

    threads = [threading.Thread(target=train, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16
    for index, gradient in results.items():
        weight = weights[index].clone().requires_grad_()
        (weight @ weight.t() * (index + 1)).sin().sum().backward()
        torch.testing.assert_close(gradient, weight.grad)


@on_both(fault_in_torch="a backward fails to compile at .backward(), without a name")
def test_a_backward_compile_error_comes_at_once_and_names_backend_graph_and_stage(wrap: Wrapper) -> None:
    def broken(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        raise ZeroDivisionError("in the backward compiler")

    backend = wrap(name="named_in_the_error", fw_compiler=as_is, bw_compiler=broken)
    with pytest.raises(Exception, match="in the backward compiler") as caught:
        torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2, requires_grad=True))
    for word in ("backward compiler", "named_in_the_error", "graph #"):
        assert word in str(caught.value)


@on_both(fault_in_torch="an unknown option is accepted silently")
def test_an_unknown_option_is_refused(wrap: Wrapper, caplog: pytest.LogCaptureFixture) -> None:
    backend = wrap(name="x", fw_compiler=as_is)
    logging.getLogger("torch._dynamo.backends.common").setLevel(logging.CRITICAL)
    with pytest.raises(Exception, match="no option 'fast_math'"):
        backend(tiny_graph(), [torch.ones(2)], options={"fast_math": True})


@on_both(fault_in_torch="a compiler's None ends in a bare TypeError")
def test_a_compiler_that_returns_none_is_named(wrap: Wrapper) -> None:
    backend = wrap(name="x", fw_compiler=lambda gm, inputs: None)
    with pytest.raises(Exception, match="returned None, expected a callable"):
        backend(tiny_graph(), [torch.ones(2)])(torch.ones(2))


@on_both(fault_in_torch="LSTM training ends in an assertion (pytorch/pytorch#158007)")
def test_an_lstm_trains(wrap: Wrapper) -> None:
    model = torch.nn.LSTM(3, 4)
    with torch._dynamo.config.patch(allow_rnn=True):
        output, _ = torch.compile(model, backend=wrap(name="x", fw_compiler=as_is))(torch.ones(2, 5, 3))
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@on_both(fault_in_torch="the backward runs under the forward's autocast state")
def test_gradients_of_a_backward_outside_autocast(wrap: Wrapper) -> None:
    # The backward of an inverse multiplies matrices: in float32, unless autocast is on when it runs.
    x = torch.eye(8) + torch.rand(8, 8) / 8
    gradients = []
    for inverse in (
        torch.linalg.inv,
        torch.compile(torch.linalg.inv, backend=wrap(name="x", fw_compiler=as_is)),
    ):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = inverse(leaf).square().sum()
        loss.backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_no_result_of_another_backend_comes_out_of_a_cache() -> None:
    from torch._functorch import config

    cache_forced = {"enable_autograd_cache": True}
    if hasattr(config, "force_autograd_cache"):
        cache_forced["force_autograd_cache"] = True
    compiled = []

    def scaling(factor: int) -> Any:
        def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            compiled.append(factor)
            return aot_core.boxed(lambda args: [factor * out for out in gm(*args)])

        return aot_core.aot_autograd(name=f"times{factor}", fw_compiler=compiler)

    for factor in (3, 5, 3):
        torch.compiler.reset()
        with config.patch(cache_forced):
            result = torch.compile(lambda x: x * 2, backend=scaling(factor))(torch.ones(1))
        assert result.item() == 2 * factor
    assert compiled == [3, 5, 3]
