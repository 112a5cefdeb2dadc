"""Outputs that no loss depends on: what only they depend on gets no gradient, and nothing runs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aot_core.debug import aot_core_eager, aot_inductor_debug
from aot_core.undefined_gradients import find_gradient_paths

# torch looks at .grad of every input it makes a fake tensor for.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

Tensors = tuple[torch.Tensor, ...]


def apart(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    return a.sin(), b.cos(), c.exp()


def shared(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    return a * b, b * c, c.detach() * a


def rounded(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    # The gradient of `floor` is zero, whatever comes in. Zeros are a gradient.
    return a.floor() * b, c.floor(), a + c


def written(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    a = a.clone()
    a.mul_(b)
    return a, c.sin(), b * 2


def views(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    ab, bc = a * b, b * c
    return ab[:2], ab[1:], bc.view(1, -1)


def same_twice(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    ab = a * b
    return ab, ab, ab.view(-1), c.sin()


def integers_too(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Tensors:
    return a.sin(), (b * c).argmax(), b.detach(), c.cos()


FUNCTIONS = [apart, shared, rounded, written, views, same_twice, integers_too]


def gradients(function: Callable[..., Any], used: int, **options: Any) -> list[Any]:
    leaves = [torch.linspace(-1, k, 4, dtype=torch.float64, requires_grad=True) for k in (1, 2, 3)]
    output = function(*leaves)[used]
    if not output.requires_grad:
        return []
    output.square().sum().backward(**options)
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("backend", [aot_core_eager, aot_inductor_debug], ids=["eager", "inductor"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_output_alone(function: Any, backend: Any) -> None:
    compiled = torch.compile(function, backend=backend)
    for used in range(len(function(*torch.ones(3, 4)))):
        found, wanted = gradients(compiled, used), gradients(function, used)
        assert [x is None for x in found] == [x is None for x in wanted]
        torch.testing.assert_close(found, wanted)


def test_a_written_input() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x.mul_(y)
        return z.sin()

    for function in (f, torch.compile(f, backend=aot_core_eager)):
        x, y, z = (torch.ones(3, requires_grad=True) for _ in range(3))
        kept = x * 1
        function(kept, y, z).sum().backward(retain_graph=True)
        assert (x.grad, y.grad) == (None, None)
        z.grad = None
        kept.sum().backward()
        torch.testing.assert_close((x.grad, y.grad), (torch.ones(3), torch.ones(3)))
        assert z.grad is None


def test_symbolic_sizes() -> None:
    compiled = torch.compile(lambda a, b: (a.sin(), b.cos()), backend=aot_core_eager, dynamic=True)
    for n in (3, 5):
        a, b = torch.ones(n, requires_grad=True), torch.ones(n + 1, requires_grad=True)
        compiled(a, b)[1].sum().backward()
        assert a.grad is None
        torch.testing.assert_close(b.grad, -b.detach().sin())


def test_nothing_runs_for_undefined_gradients_alone() -> None:
    """A backward that eager would not run has no claim on what it saved."""

    @torch.compile(backend=aot_core_eager)
    def first(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @torch.compile(backend=aot_core_eager)
    def second(y: torch.Tensor, z: torch.Tensor) -> Tensors:
        return y * 2, z * 3

    x, z = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    y = first(x)
    used = second(y, z)[1]
    with torch.no_grad():
        y.zero_()  # exp saves its result
    used.sum().backward()
    assert x.grad is None
    torch.testing.assert_close(z.grad, torch.full((3,), 3.0))


def test_an_optimizer_leaves_unused_parameters_alone() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    before = model[1].weight.detach().clone()
    compiled = torch.compile(lambda x: (model[0](x), model[1](x)), backend=aot_core_eager)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    compiled(torch.ones(3, 2))[0].sum().backward()
    optimizer.step()
    torch.testing.assert_close(model[1].weight, before, rtol=0, atol=0)


def test_dropout_between_used_and_unused() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Tensors:
        return torch.nn.functional.dropout(a * b, 0.5), b.sin()

    a, b = torch.ones(64, requires_grad=True), torch.ones(64, requires_grad=True)
    out = torch.compile(f, backend=aot_core_eager)(a, b)
    out[0].sum().backward(retain_graph=True)
    torch.testing.assert_close(a.grad, out[0].detach())
    a.grad = b.grad = None
    out[1].sum().backward()
    assert a.grad is None


@pytest.mark.parametrize("used", [0, 1])
def test_compiled_autograd(used: int) -> None:
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda a, b: (a.sin(), b.exp()), backend=aot_core_eager)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=aot_core_eager)):
        compiled(a, b)[used].sum().backward()
    wanted = [a.detach().cos(), b.detach().exp()][used]
    torch.testing.assert_close([a.grad, b.grad][used], wanted)


class TestPaths:
    def paths(self, function: Any, *inputs: Any) -> Any:
        return find_gradient_paths(torch.fx.symbolic_trace(function), inputs)

    def test_outputs_and_written_inputs(self) -> None:
        def f(x: Any, y: Any, z: Any) -> Any:
            x.mul_(y)
            return y * z.detach(), x + z

        leaves = [torch.ones(3, requires_grad=True) for _ in range(3)]
        found = self.paths(f, leaves[0] * 1, *leaves[1:])
        assert found.outputs == (frozenset({1}), frozenset({0, 1, 2}))
        assert found.inputs == (frozenset({0, 1}), frozenset({1}), frozenset({2}))

    def test_a_graph_that_fails_on_fakes(self) -> None:
        assert self.paths(lambda x: x.numpy(), torch.ones(2)) is None
