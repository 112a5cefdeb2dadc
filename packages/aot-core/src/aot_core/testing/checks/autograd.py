"""Gradients: which there are, what they are, and everything that PyTorch lets a user do with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients, perceptron
from aot_core.testing.subject import Subject


@check()
def training(subject: Subject) -> Any:
    """A training step gives eager's output, parameter gradients and input gradient."""
    model = perceptron(subject)
    x = subject.randn(3, 4, grad=True)
    out = subject.compile(model)(x)
    out.square().sum().backward()
    return {"out": out, "input.grad": x.grad, **gradients(model)}


@check()
def inference(subject: Subject) -> Any:
    """A model in eval mode under no_grad gives eager's output."""
    model = perceptron(subject).eval()
    with torch.no_grad():
        return {"out": subject.compile(model)(subject.randn(3, 4))}


@check()
def optimizer_loop(subject: Subject) -> Any:
    """Several optimizer steps through one compiled model give eager's losses."""
    model = perceptron(subject)
    run = subject.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, target = subject.randn(8, 4), subject.randn(8, 2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses)}


@check()
def partially_frozen(subject: Subject) -> Any:
    """Frozen parameters get no gradient, the others get eager's."""
    model = perceptron(subject)
    model[0].requires_grad_(False)
    subject.compile(model)(subject.randn(3, 4)).sum().backward()
    return gradients(model)


@check()
def gradient_through_frozen_model(subject: Subject) -> Any:
    """An input gets its gradient though no parameter requires one."""
    model = perceptron(subject).requires_grad_(False)
    x = subject.randn(3, 4, grad=True)
    subject.compile(model)(x).sum().backward()
    return {"input.grad": x.grad, **gradients(model)}


@check()
def unused_output(subject: Subject) -> Any:
    """When one of two outputs goes unused, what reaches the other is right, and nothing is made up."""
    first, second = subject.randn(3, grad=True), subject.randn(3, grad=True)

    def both(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.sin(), b.cos()

    used, _ = subject.compile(both)(first, second)
    used.sum().backward()
    assert second.grad is None or not second.grad.any(), (
        f"the input of the unused output got gradient {second.grad}"
    )
    return {"used": first.grad}


@check()
def unused_output_gives_no_gradient(subject: Subject) -> Any:
    """A parameter that only an unused output depends on keeps ``grad=None``, so that optimizers skip it."""
    first, second = subject.randn(3, grad=True), subject.randn(3, grad=True)

    def both(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.sin(), b.cos()

    used, _ = subject.compile(both)(first, second)
    used.sum().backward()
    return {"used": first.grad, "unused": second.grad}


@check()
def output_without_gradient(subject: Subject) -> Any:
    """Outputs that can't have a gradient, integer or detached ones, say so."""
    x = subject.randn(4, grad=True)

    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.detach() + 1, y.argmax()

    out = subject.compile(mixed)(x)
    out[0].sum().backward()
    return {"outputs": out, "input.grad": x.grad}


@check()
def gradient_accumulation(subject: Subject) -> Any:
    """Gradients of several backward calls add up in ``.grad``."""
    model = perceptron(subject)
    run = subject.compile(model)
    for _ in range(3):
        run(subject.randn(3, 4)).square().sum().backward()
    return gradients(model)


@check()
def interleaved_backward(subject: Subject) -> Any:
    """Two forwards, then their backwards in any order: each uses what its own forward saved."""
    run = subject.compile(perceptron(subject))
    first, second = subject.randn(3, 4, grad=True), subject.randn(3, 4, grad=True)
    out_first, out_second = run(first), run(second)
    out_first.square().sum().backward()
    out_second.square().sum().backward()
    return {"first": first.grad, "second": second.grad}


@check()
def retain_graph(subject: Subject) -> Any:
    """backward() may run again over a graph that was retained, and adds the same gradient again."""
    x = subject.randn(3, 4, grad=True)
    loss = subject.compile(perceptron(subject))(x).square().sum()
    loss.backward(retain_graph=True)
    once = x.grad.clone()  # type: ignore[union-attr]
    loss.backward()
    return {"once": once, "twice": x.grad}


@check()
def second_backward_is_an_error(subject: Subject) -> Any:
    """backward() a second time without retain_graph raises RuntimeError, as in eager."""
    # sum() saves nothing, so that the error must come from the compiled part.
    loss = subject.compile(perceptron(subject))(subject.randn(3, 4)).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError:
        return None
    raise AssertionError("the second backward() over a freed graph raised nothing")


@check()
def double_backward(subject: Subject) -> Any:
    """Gradients of gradients are eager's."""
    return _second_derivative(subject)


@check()
def double_backward_is_never_wrong(subject: Subject) -> Any:
    """Gradients of gradients are eager's, or asking for them raises; they are never silently wrong."""
    eager = _second_derivative(dataclasses.replace(subject, backend=None))
    try:
        actual = _second_derivative(subject)
    except Exception:
        return None
    torch.testing.assert_close(actual, eager)
    return None


def _second_derivative(subject: Subject) -> dict[str, Any]:
    torch.manual_seed(0)
    x = subject.randn(4, grad=True)

    def cubic(x: torch.Tensor) -> torch.Tensor:
        return (x * x * x).sum()

    (gradient,) = torch.autograd.grad(subject.compile(cubic)(x), x, create_graph=True)
    gradient.square().sum().backward()  # type: ignore[no-untyped-call]
    return {"input.grad": x.grad}


@check()
def partial_gradients(subject: Subject) -> Any:
    """torch.autograd.grad for some of the inputs, with a given output gradient, gives eager's."""
    x, w, b = subject.randn(3, 4, grad=True), subject.randn(4, 2, grad=True), subject.randn(2, grad=True)

    def affine(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x @ w + b)

    out = subject.compile(affine)(x, w, b)
    return {"grads": torch.autograd.grad(out, (w, b), subject.randn(3, 2))}


@check()
def tied_weights(subject: Subject) -> Any:
    """A weight used in two places gets the sum of both gradients."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.out = nn.Linear(4, 6, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.out(self.embed(index))
            return out

    model = subject.place(Tied())
    index = subject.place(torch.tensor([0, 3, 3, 5]))
    subject.compile(model)(index).square().sum().backward()
    return gradients(model)


@check()
def sparse_gradients(subject: Subject) -> Any:
    """nn.Embedding(sparse=True) gets a sparse gradient, as its optimizers need."""
    model = subject.place(nn.Embedding(6, 4, sparse=True))
    index = subject.place(torch.tensor([1, 4, 4]))
    subject.compile(model)(index).square().sum().backward()
    return gradients(model)


class _ClippedIdentity(torch.autograd.Function):
    """Identity forwards; backwards the gradient is clipped, which no derivative rule would do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0].clamp(-1, 1) * x.sign()


@check()
def custom_autograd_function(subject: Subject) -> Any:
    """The backward of a torch.autograd.Function in the model is the one that is used."""
    x = subject.randn(5, grad=True)

    def straight_through(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _ClippedIdentity.apply(x)  # type: ignore[no-untyped-call]
        return out * 3

    subject.compile(straight_through)(x).sum().backward()
    return {"input.grad": x.grad}


@check()
def activation_checkpointing(subject: Subject) -> Any:
    """torch.utils.checkpoint in the model gives eager's gradients."""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = checkpoint(self.block, x, use_reentrant=False)
            return out * 2

    model = subject.place(Checkpointed())
    x = subject.randn(3, 4, grad=True)
    subject.compile(model)(x).square().sum().backward()
    return {"input.grad": x.grad, **gradients(model)}


@check()
def saved_tensor_hooks(subject: Subject) -> Any:
    """Saved activations pass the hooks that pack and unpack them, as save_on_cpu needs."""
    model = perceptron(subject)
    run = subject.compile(model)
    x = subject.randn(3, 4, grad=True)
    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tuple(tensor.shape))
        return tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = run(x).sum()  # saves nothing itself
    assert packed, "no saved activation passed the hook"
    loss.backward()
    return {"input.grad": x.grad, **gradients(model)}


@check()
def tensor_hooks(subject: Subject) -> Any:
    """Hooks on parameters, inputs and outputs run once each and may replace the gradient."""
    model = perceptron(subject)
    calls = []

    def hook(name: str) -> Any:
        def double(grad: torch.Tensor) -> torch.Tensor:
            calls.append(name)
            return grad * 2

        return double

    x = subject.randn(3, 4, grad=True)
    x.register_hook(hook("input"))  # type: ignore[no-untyped-call]
    model.get_parameter("2.weight").register_hook(hook("weight"))  # type: ignore[no-untyped-call]
    out = subject.compile(model)(x)
    out.register_hook(hook("output"))
    out.sum().backward()
    return {"calls": sorted(calls), "input.grad": x.grad, **gradients(model)}


@check()
def accumulate_grad_hooks(subject: Subject) -> Any:
    """A hook after gradient accumulation runs once per parameter, so that it can step and free."""
    model = perceptron(subject)
    stepped = []

    def step(parameter: torch.Tensor) -> None:
        stepped.append(tuple(parameter.shape))
        assert parameter.grad is not None, "the hook ran before the gradient was there"
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    subject.compile(model)(subject.randn(3, 4)).sum().backward()
    return {"stepped": sorted(stepped), "parameters": list(model.parameters()), **gradients(model)}


@check()
def retain_grad(subject: Subject) -> Any:
    """retain_grad() on an output keeps its gradient."""
    x = subject.randn(4, grad=True)
    out = subject.compile(torch.sin)(x)
    out.retain_grad()
    out.square().sum().backward()
    return {"out.grad": out.grad, "input.grad": x.grad}


@check()
def no_grad_inside(subject: Subject) -> Any:
    """What the model computes under its own no_grad passes no gradient."""
    x = subject.randn(4, grad=True)

    def normalized(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    out = subject.compile(normalized)(x)
    out.square().sum().backward()
    return {"out": out, "input.grad": x.grad}


@check()
def function_transforms(subject: Subject) -> Any:
    """torch.func.vmap and torch.func.grad inside the compiled function give eager's values."""

    def per_sample(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def loss(w: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
            return torch.tanh(sample @ w).sum()

        out: torch.Tensor = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
        return out

    return {"out": subject.compile(per_sample)(subject.randn(4, 2), subject.randn(3, 4))}
