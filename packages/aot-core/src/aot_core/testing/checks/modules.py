"""Modules that live on after they were compiled: changed, saved, copied, nested, hooked."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from torch import nn

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients, perceptron
from aot_core.testing.subject import Subject


@check()
def train_eval_switch(subject: Subject) -> Any:
    """Batch norm follows train() and eval() after compilation, in both directions."""
    model = subject.place(nn.BatchNorm1d(4))
    run = subject.compile(model)
    outputs = []
    for training in (True, False, True):
        model.train(training)
        outputs.append(run(subject.randn(6, 4)))
    return {"outputs": outputs, "mean": model.running_mean}


@check()
def replaced_submodule(subject: Subject) -> Any:
    """A submodule replaced after compilation is the one that runs."""
    model = perceptron(subject)
    run = subject.compile(model)
    x = subject.randn(3, 4)
    before = run(x)
    model[1] = nn.ReLU()
    return {"before": before, "after": run(x)}


@check()
def replaced_parameter(subject: Subject) -> Any:
    """A parameter replaced after compilation is read, and gets the gradient."""
    model = subject.place(nn.Linear(4, 2))
    run = subject.compile(model)
    x = subject.randn(3, 4)
    before = run(x)
    old, model.weight = model.weight, nn.Parameter(subject.randn(2, 4))
    after = run(x)
    after.sum().backward()
    return {"before": before, "after": after, "old.grad": old.grad, **gradients(model)}


@check()
def changed_attribute(subject: Subject) -> Any:
    """A Python attribute changed after compilation counts with its new value."""

    class Scaled(nn.Module):
        scale = 2.0
        negate = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -x * self.scale if self.negate else x * self.scale

    model = Scaled()
    run = subject.compile(model)
    x = subject.arange(3)
    outputs = [run(x)]
    model.scale = 5.0
    outputs.append(run(x))
    model.negate = True
    outputs.append(run(x))
    return {"outputs": outputs}


@check()
def changed_dtype(subject: Subject) -> Any:
    """A model converted to float64 after compilation computes in float64."""
    model = perceptron(subject)
    run = subject.compile(model)
    x = subject.randn(3, 4)
    before = run(x)
    model.double()
    return {"before": before, "after": run(x.double())}


@check()
def changed_requires_grad(subject: Subject) -> Any:
    """Parameters frozen and unfrozen after compilation lose and get gradients."""
    model = perceptron(subject)
    run = subject.compile(model)
    steps = []
    for frozen in (False, True, False):
        model[0].requires_grad_(not frozen)
        model.zero_grad()
        run(subject.randn(3, 4)).sum().backward()
        steps.append({name: None if g is None else g.clone() for name, g in gradients(model).items()})
    return {"steps": steps}


@check()
def state_dict(subject: Subject) -> Any:
    """State saved from a compiled model and loaded into another one takes effect, compiled already or not."""
    source = subject.compile(perceptron(subject))
    target = subject.compile(perceptron(subject))
    x = subject.randn(3, 4)
    expected = source(x)
    before = target(x)
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file))
    return {"source": expected, "before": before, "after": target(x)}


@check()
def deepcopy(subject: Subject) -> Any:
    """A deep copy of a compiled model, made before or after its first call, runs with parameters of its own."""
    model = subject.compile(perceptron(subject))
    x = subject.randn(3, 4)
    early = copy.deepcopy(model)
    model(x)
    late = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    late(x).square().sum().backward()
    return {
        "model": model(x),
        "early": early(x),
        "late": late(x),
        "grads": [p.grad for p in late.parameters()],
    }


@check()
def nested_compilation(subject: Subject) -> Any:
    """A compiled module inside a compiled module gives eager's output and gradients."""

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = subject.compile(perceptron(subject))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.inner(x * 2)
            return out.sin()

    model = Outer()
    x = subject.randn(3, 4, grad=True)
    out = subject.compile(model)(x)
    out.sum().backward()
    return {"out": out, "input.grad": x.grad, "grads": [p.grad for p in model.parameters()]}


@check()
def compiled_parts(subject: Subject) -> Any:
    """Compiled parts inside an eager model, one called twice, give eager's output and gradients."""
    first, second = perceptron(subject), subject.place(nn.Linear(2, 4))
    part, other = subject.compile(first), subject.compile(second)
    x = subject.randn(3, 4, grad=True)
    out = part(other(part(x)).relu())
    out.square().sum().backward()
    return {"out": out, "input.grad": x.grad, **gradients(first), "other": gradients(second)}


@check()
def two_models_alternate(subject: Subject) -> Any:
    """Two models with inputs of one shape, compiled by one backend and called in turn, keep apart."""
    first = subject.compile(perceptron(subject))
    second = subject.compile(perceptron(subject).append(nn.Tanh()))
    x = subject.randn(3, 4)
    return {"outputs": [model(x) for model in (first, second, first, second)]}


@check()
def module_hooks(subject: Subject) -> Any:
    """Forward hooks and pre-hooks see and change what passes."""
    model = perceptron(subject)
    seen = []

    def before(module: nn.Module, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return args[0] * 2

    def after(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        seen.append(out.detach().sum())
        return out + 1

    model[0].register_forward_pre_hook(before)
    model[2].register_forward_hook(after)
    run = subject.compile(model)
    x = subject.randn(3, 4, grad=True)
    outputs = [run(x), run(x)]
    outputs[-1].sum().backward()
    return {"outputs": outputs, "seen": seen, "input.grad": x.grad}


@check()
def backward_module_hooks(subject: Subject) -> Any:
    """A full backward hook on a submodule sees and changes the gradients."""

    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(self.first(x))
            out: torch.Tensor = self.second(y)
            return out * 2

    model = subject.place(Hooked())
    seen = []

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        seen.append(grad_output[0].detach())
        return tuple(3 * grad for grad in grad_input)

    model.second.register_full_backward_hook(hook)
    x = subject.randn(3, 4, grad=True)
    subject.compile(model)(x).square().sum().backward()
    return {"seen": seen, "input.grad": x.grad, **gradients(model)}
