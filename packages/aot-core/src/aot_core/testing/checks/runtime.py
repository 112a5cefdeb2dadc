"""Living in a process with others: modes, errors, memory, threads, global state."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aot_core.testing.check import check
from aot_core.testing.checks.models import gradients, perceptron
from aot_core.testing.subject import Subject

THREADS = 4


@check()
def inference_mode(subject: Subject) -> Any:
    """Under inference_mode outputs are inference tensors with eager's values."""
    run = subject.compile(perceptron(subject))
    with torch.inference_mode():
        out = run(subject.randn(3, 4))
    return {"out": out, "is inference": out.is_inference()}


@check()
def grad_mode_changes_between_calls(subject: Subject) -> Any:
    """One model called for training, under no_grad, under inference_mode and for training again follows."""
    model = perceptron(subject)
    run = subject.compile(model)
    x = subject.randn(3, 4)
    outputs = [run(x)]
    with torch.no_grad():
        outputs.append(run(x))
    with torch.inference_mode():
        outputs.append(run(x))
    outputs.append(run(x))
    outputs[-1].sum().backward()
    return {"outputs": outputs, "inference": [out.is_inference() for out in outputs], **gradients(model)}


@check()
def global_state_untouched(subject: Subject) -> Any:
    """Compiling and running leave grad mode, autocast, default dtype and determinism as they were."""

    def state() -> tuple[Any, ...]:
        return (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled(subject.device.type),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_inference_mode_enabled(),
        )

    run = subject.compile(perceptron(subject))
    before = state()
    run(subject.randn(3, 4)).sum().backward()
    with torch.no_grad():
        run(subject.randn(3, 4))
    return {"state": state() == before}


@check()
def error_in_model(subject: Subject) -> Any:
    """An exception that the model raises keeps type and message, and the next call works."""

    class Limited(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, limit: int) -> torch.Tensor:
            y: torch.Tensor = self.linear(x)
            if limit < 0:
                raise LookupError(f"limit is {limit}")
            return y * limit

    run = subject.compile(subject.place(Limited()))
    x = subject.randn(3, 4)
    before = run(x, 2)
    return {"before": before, "error": _error(lambda: run(x, -1)), "after": run(x, 2)}


@check()
def error_in_operation(subject: Subject) -> Any:
    """An operation that fails on the data raises eager's exception type, and the next call works."""
    if subject.device.type != "cpu":
        subject.skip("a bad index on an accelerator is no exception but the end of the process")
    model = subject.place(nn.Embedding(4, 3))
    run = subject.compile(model)
    good, bad = torch.tensor([1, 3]), torch.tensor([1, 9])
    before = run(good)
    name, _ = _error(lambda: run(bad))
    after = run(good)
    after.sum().backward()
    return {"before": before, "error": name, "after": after, **gradients(model)}


@check()
def error_in_backward(subject: Subject) -> Any:
    """An exception from a gradient hook keeps its type, and the next step works."""
    model = perceptron(subject)
    run = subject.compile(model)

    def refuse(grad: torch.Tensor) -> None:
        raise LookupError("refused")

    out = run(subject.randn(3, 4))
    out.register_hook(refuse)
    error = _error(lambda: out.sum().backward())
    run(subject.randn(3, 4)).sum().backward()
    return {"error": error, **gradients(model)}


def _error(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", "nothing was raised"


@check()
def inputs_released(subject: Subject) -> Any:
    """No input or output outlives the last reference of the user."""
    model = perceptron(subject)
    run = subject.compile(model)
    references: dict[str, weakref.ref[torch.Tensor]] = {}
    for step in range(2):
        x = subject.randn(3, 4, grad=True)
        out = run(x)
        out.square().sum().backward()
        references |= {f"input {step}": weakref.ref(x), f"output {step}": weakref.ref(out)}
        del x, out
    gc.collect()
    alive = [name for name, reference in references.items() if reference() is not None]
    assert not alive, f"still alive: {', '.join(alive)}"


class _Saved:
    """A saved activation that can be watched."""

    def __init__(self, tensor: torch.Tensor) -> None:
        # With its grad_fn, an output that is saved would hold the node that holds it.
        self.tensor = tensor.detach()


@check()
def activations_released(subject: Subject) -> Any:
    """What was saved for a backward that never ran is freed with the output."""
    saved: list[weakref.ref[_Saved]] = []

    def pack(tensor: torch.Tensor) -> _Saved:
        kept = _Saved(tensor)
        saved.append(weakref.ref(kept))
        return kept

    run = subject.compile(perceptron(subject))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        out = run(subject.randn(3, 4, grad=True))
    assert saved, "no activation was saved for the backward"
    del out
    gc.collect()
    alive = sum(reference() is not None for reference in saved)
    assert not alive, f"{alive} of {len(saved)} activations outlive the output that they were saved for"


@check()
def model_released(subject: Subject) -> Any:
    """When a compiled model is dropped and the compiler reset, its parameters are freed."""
    model = perceptron(subject)
    run = subject.compile(model)
    run(subject.randn(3, 4)).sum().backward()
    references = {name: weakref.ref(parameter) for name, parameter in model.named_parameters()}
    del model, run
    torch.compiler.reset()
    gc.collect()
    alive = [name for name, reference in references.items() if reference() is not None]
    assert not alive, f"still alive: {', '.join(alive)}"


@check()
def threads_share_a_model(subject: Subject) -> Any:
    """Threads that call one compiled model at once each get their own result and gradient."""
    model = perceptron(subject)
    run = subject.compile(model)
    inputs = [subject.randn(3, 4, grad=True) for _ in range(THREADS)]

    def work(index: int, together: Callable[[], Any]) -> Any:
        outputs = []
        for _ in range(3):
            together()
            out = run(inputs[index])
            outputs += [out.detach(), *torch.autograd.grad(out.square().sum(), inputs[index])]
        return outputs

    return {"results": _in_threads(work)}


@check()
def threads_share_a_backend(subject: Subject) -> Any:
    """Threads that compile models of their own with one backend at once don't mix them up."""
    models = [perceptron(subject).append(nn.Linear(2, 1 + index)) for index in range(THREADS)]
    models = [subject.place(model) for model in models]
    x = subject.randn(3, 4)

    def work(index: int, together: Callable[[], Any]) -> Any:
        run = subject.compile(models[index])
        outputs = []
        for _ in range(2):
            together()
            outputs.append(run(x))
            outputs[-1].square().sum().backward()
        return {"outputs": outputs, **gradients(models[index])}

    return {"results": _in_threads(work)}


def _in_threads(work: Callable[[int, Callable[[], Any]], Any]) -> list[Any]:
    """Return what ``work(index, together)`` gives in each thread.

    ``together()`` waits until all threads are there. Dynamo compiles in one thread at a time, so that without
    it the calls would come one after the other too.
    """
    results: list[Any] = [None] * THREADS
    errors: list[BaseException] = []
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> None:
        try:
            results[index] = work(index, barrier.wait)
        except threading.BrokenBarrierError:
            pass  # another thread failed, and says why
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@check()
def reentrant_call(subject: Subject) -> Any:
    """A compiled function may be called from a hook that runs inside its own backward."""
    run = subject.compile(torch.sin)
    x, y = subject.randn(4, grad=True), subject.randn(4, grad=True)
    inner: list[torch.Tensor] = []

    def hook(grad: torch.Tensor) -> None:
        with torch.enable_grad():
            inner.extend(torch.autograd.grad(run(y).sum(), y))

    out = run(x)
    out.register_hook(hook)
    out.sum().backward()
    return {"input.grad": x.grad, "inner": inner}


@check()
def compiles_again_after_reset(subject: Subject) -> Any:
    """After torch.compiler.reset() the same compiled model works, with the state that it had."""
    model = subject.place(nn.BatchNorm1d(4))
    run = subject.compile(model)
    outputs = [run(subject.randn(6, 4))]
    torch.compiler.reset()
    outputs.append(run(subject.randn(6, 4)))
    outputs[-1].sum().backward()
    return {"outputs": outputs, "mean": model.running_mean, **gradients(model)}
