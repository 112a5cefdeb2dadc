"""Eager runs a backward under the autocast state of the call of ``.backward()``; so must a compiled one."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import aot_core
from aot_core.autocast import autocast_state, describe, only_autocast, with_forward_autocast
from aot_core.debug import aot_core_eager, aot_inductor_debug

BFLOAT16 = (("cpu", torch.bfloat16),)
FLOAT16 = (("cpu", torch.float16),)


def autocast(state: Any) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=state) if state is not None else contextlib.nullcontext()


class Model(torch.nn.Module):
    """Every op here has a backward that multiplies matrices, or is on one of autocast's lists."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.second = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.nn.functional.gelu(self.first(x)))
        inverse = torch.linalg.inv(torch.eye(8) + 0.01 * hidden[:8].float())
        return torch.softmax(self.second(hidden + inverse), dim=-1)


def gradients(model: Model, step: Any, x: torch.Tensor, forward: Any, backward: Any) -> list[torch.Tensor]:
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    with autocast(forward):
        loss = (step(leaf).float() * torch.arange(4.0)).square().sum()
    with autocast(backward):
        loss.backward()
    return [leaf.grad, *(parameter.grad for parameter in model.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize("forward", [None, torch.bfloat16])
@pytest.mark.parametrize("backward", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_equal_eagers_to_the_bit(forward: Any, backward: Any, dynamic: bool) -> None:
    model, x = Model(), torch.randn(8, 8)
    compiled = torch.compile(model, backend=aot_core_eager, dynamic=dynamic)
    for _ in range(2):
        wanted = gradients(model, model, x, forward, backward)
        for one, other in zip(gradients(model, compiled, x, forward, backward), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_one_forward_many_backwards(reports: list[aot_core.CompileReport]) -> None:
    model, x = Model(), torch.randn(8, 8)
    compiled = torch.compile(model, backend=aot_core_eager)
    states = [None, torch.bfloat16, torch.float16, torch.bfloat16, None]
    for backward in states:
        wanted = gradients(model, model, x, None, backward)
        for one, other in zip(gradients(model, compiled, x, None, backward), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    (report,) = reports
    assert [decision.code for decision in report.decisions] == ["backward-autocast"] * 2
    assert "backward under cpu:bfloat16" in report.stages


def test_a_recomputing_partitioner_keeps_its_saved_values() -> None:
    model, x = Model(), torch.randn(8, 8)
    compiled = torch.compile(model, backend=aot_inductor_debug)
    wanted = gradients(model, model, x, None, torch.bfloat16)
    for one, other in zip(gradients(model, compiled, x, None, torch.bfloat16), wanted, strict=True):
        # Inductor's decompositions compute in another order, in bfloat16's eight bits.
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1 * float(other.abs().max()))


def test_the_mask_of_a_dropout_is_the_same_in_every_variant() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x @ w, 0.5).sum()

    compiled = torch.compile(loss, backend=aot_core_eager)
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    found = []
    for step in (loss, compiled):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(3)
        out = step(leaf, w)
        with autocast(torch.bfloat16):
            out.backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_inputs_that_share_memory_get_a_named_error() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).sum()

    base = torch.randn(8, 4)
    compiled = torch.compile(loss, backend=aot_core_eager)
    out = compiled(base[:4].requires_grad_(), base[4:])
    with autocast(torch.bfloat16), pytest.raises(aot_core.BackwardAutocastError, match="shares memory") as e:
        out.backward()
    assert "aot_core_eager" in str(e.value)


def test_a_variant_that_fails_leaves_the_others_working() -> None:
    fail = True

    def backward_compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if fail and "under" in aot_core.current_compilation().stage:
            raise ValueError("no bfloat16 here")
        return gm

    backend = aot_core.aot_autograd(
        name="x", fw_compiler=lambda gm, inputs: gm, bw_compiler=backward_compiler
    )
    x = torch.randn(4, 4)
    compiled = torch.compile(torch.linalg.inv, backend=backend)

    def gradient(state: Any) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        out = compiled(leaf).sum()
        with autocast(state):
            out.backward()
        assert leaf.grad is not None
        return leaf.grad

    first = gradient(None)
    with pytest.raises(aot_core.CompilerError, match="backward under cpu:bfloat16"):
        gradient(torch.bfloat16)
    assert autocast_state() == ()
    torch.testing.assert_close(gradient(None), first)
    fail = False
    gradient(torch.bfloat16)


def test_autocast_inside_the_model_is_left_alone() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            y = x @ x
        return y + x @ x

    with autocast(torch.bfloat16):
        assert torch.compile(f, backend=aot_core_eager)(torch.eye(3)).dtype == f(torch.eye(3)).dtype
        compiled_inference = torch.compile(lambda x: x @ x, backend=aot_core_eager)
        with torch.no_grad():
            assert compiled_inference(torch.eye(3)).dtype == torch.bfloat16


class TestState:
    def test_reading(self) -> None:
        assert autocast_state() == ()
        with autocast(torch.bfloat16):
            assert autocast_state() == BFLOAT16
        assert (describe(()), describe(BFLOAT16)) == ("off", "cpu:bfloat16")

    def test_it_is_put_back_after_a_trace_that_fails(self) -> None:
        with pytest.raises(ValueError, match="half-way"), only_autocast(()):
            torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
            raise ValueError("half-way")
        assert autocast_state() == ()
        assert torch.autocast_increment_nesting() == 1
        torch.autocast_decrement_nesting()

    def test_the_state_of_the_caller_is_put_back(self) -> None:
        with autocast(torch.float16):
            with only_autocast(BFLOAT16):
                assert autocast_state() == BFLOAT16
            assert autocast_state() == FLOAT16

    @pytest.mark.parametrize("forward", [(), BFLOAT16])
    @pytest.mark.parametrize("ambient", [(), BFLOAT16, FLOAT16])
    def test_a_graph_carries_its_state(self, forward: Any, ambient: Any) -> None:
        graph = torch.fx.symbolic_trace(lambda x: (x @ x,))
        code = graph.code
        carrying = with_forward_autocast(graph, forward, ambient=ambient)
        with only_autocast(ambient):
            assert carrying(torch.eye(2))[0].dtype == (torch.bfloat16 if forward else torch.float32)
            assert autocast_state() == ambient
        assert graph.code == code
        assert (carrying is graph) == (forward == ambient)
