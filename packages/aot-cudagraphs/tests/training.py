"""Training runs, and what of them must not differ between backends."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import aot_cudagraphs
from aot_cudagraphs.simulator import SimulatedEngine

STEPS = 12


def compiled(function: Any, backend: Any = None, dynamic: bool | None = None, **options: Any) -> Any:
    """Compile with this package's backend on the simulator, or with another one."""
    if backend is not None:
        return torch.compile(function, backend=backend, dynamic=dynamic)
    return torch.compile(
        function,
        backend=aot_cudagraphs.aot_cudagraphs,
        dynamic=dynamic,
        options={"capture": "simulated", **options},
    )


def regression(model: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def next_token(model: Callable[..., Any], tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(
    model: nn.Module,
    function: Callable[..., Any],
    batches: Sequence[torch.Tensor],
    loss_of: Callable[..., torch.Tensor] = regression,
    accumulate: int = 1,
) -> list[Any]:
    """Train a model through a function that runs it; return losses, then gradients, parameters and buffers."""
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen: list[Any] = []
    for i, batch in enumerate(batches):
        loss = loss_of(function, batch)
        loss.backward()
        seen.append(loss.detach().clone())
        if (i + 1) % accumulate == 0:
            seen += [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
    return seen + [value.clone() for value in model.state_dict().values()]


def assert_identical(got: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare bit for bit."""
    assert len(got) == len(expected)
    for i, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert torch.equal(one, other), f"value {i}: {one} is not {other}"


@contextlib.contextmanager
def everything_given_back() -> Iterator[None]:
    """Check that no byte is held before and after, once compiled code is forgotten."""
    torch._dynamo.reset()
    gc.collect()
    assert aot_cudagraphs.held_bytes() == 0
    yield
    torch._dynamo.reset()
    gc.collect()
    assert aot_cudagraphs.held_bytes() == 0


def twin(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def eager_peak(
    model: nn.Module, batch: torch.Tensor, loss_of: Callable[..., torch.Tensor] = regression
) -> int:
    """Return the most bytes that one eager step has allocated at once, by the same allocator as the simulator's."""
    engine = SimulatedEngine()
    pool = engine.new_pool()

    def step(inputs: list[Any]) -> list[Any]:
        loss_of(model, batch).backward()
        return []

    engine.record(step, [], pool)
    for parameter in model.parameters():
        parameter.grad = None
    return pool.peak_bytes
