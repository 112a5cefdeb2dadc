"""The part of a reproducer that is always the same. Its source is copied into the file, which needs torch alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

# --- copied from here ---


def random_tensor(
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    *,
    spread: tuple[float, float, float, float],
    offset: int = 0,
    requires_grad: bool = False,
    device: str = "cpu",
    memory: torch.Tensor | None = None,
) -> torch.Tensor:
    """Draw a tensor: ``spread`` is the lowest and highest value, the mean and the standard deviation."""
    low, high, mean, deviation = spread
    if memory is None:
        length = (
            1 + offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            if 0 not in size
            else offset
        )
        drawn = (torch.randn(length, dtype=torch.float64) * deviation + mean).clamp(low, high)
        memory = (drawn if dtype.is_floating_point or dtype.is_complex else drawn.round()).to(device, dtype)
    return memory.detach().as_strided(size, stride, offset).detach().requires_grad_(requires_grad)


class Model(torch.nn.Module):
    """Calls a graph with some of its inputs held as parameters and buffers: compilers treat those otherwise."""

    def __init__(self, graph: Any, inputs: list[Any], held: Sequence[int]) -> None:
        super().__init__()
        self.graph = graph
        self.of_call = [i not in held for i in range(len(inputs))]
        for i in held:
            register = self.register_parameter if inputs[i].requires_grad else self.register_buffer
            register(f"x{i}", inputs[i])

    def forward(self, *others: Any) -> Any:
        inputs, taken = [], 0
        for i, of_call in enumerate(self.of_call):
            inputs.append(others[taken] if of_call else getattr(self, f"x{i}"))
            taken += of_call
        return self.graph(*inputs)


def observe(
    graph: Any, make_inputs: Any, held: Sequence[int], backend: Any, seed: int, wide: bool = False
) -> dict[str, Any]:
    """Run the graph forward and backward, and return all that is seen."""
    torch.compiler.reset()
    torch.manual_seed(seed)
    inputs = make_inputs()
    if wide:
        inputs = [
            x.detach().double().requires_grad_(x.requires_grad)
            if isinstance(x, torch.Tensor) and x.is_floating_point()
            else x
            for x in inputs
        ]
    for i in held:
        if inputs[i].requires_grad:
            inputs[i] = torch.nn.Parameter(inputs[i])
    torch.manual_seed(seed)
    model = Model(graph, inputs, held)
    run = model if backend is None else torch.compile(model, backend=backend)
    outputs = run(*(x for i, x in enumerate(inputs) if i not in held))
    seen: dict[str, Any] = {"random state": torch.get_rng_state()}
    tensors = {f"output[{i}]": y for i, y in enumerate(outputs) if isinstance(y, torch.Tensor)}
    given = {f"input[{i}]": x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
    for name, y in tensors.items():
        own = y.untyped_storage().data_ptr()
        others = [other for other, x in (given | tensors).items() if x.untyped_storage().data_ptr() == own]
        stride = tuple(step for n, step in zip(y.shape, y.stride(), strict=True) if n > 1)
        seen[f"layout of {name}"] = (tuple(y.shape), y.dtype, stride, y.requires_grad, others if own else [])
        seen[name] = y.detach().clone()
    generator = torch.Generator().manual_seed(seed)
    roots = [y for y in tensors.values() if y.requires_grad]
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y) for y in roots]
    if roots:
        torch.autograd.backward(roots, weights)
        seen["random state after backward"] = torch.get_rng_state()
    for name, x in given.items():
        seen[f"{name} afterwards"] = x.detach().clone()
        seen[f"gradient of {name}"] = None if x.grad is None else x.grad.detach().clone()
    return seen


def differs(want: Any, have: Any, exact: Any, relative: float) -> str | None:
    """Tell how a value is wrong: when its error exceeds a floor and ten times eager's own."""
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return None if type(want) is type(have) and want == have else f"expected {want}, got {have}"
    if want.shape != have.shape or want.dtype != have.dtype:
        return f"expected {want.dtype} {tuple(want.shape)}, got {have.dtype} {tuple(have.shape)}"
    if not want.is_floating_point():
        return None if torch.equal(want, have) else "not equal"
    eager, compiled = want.double(), have.double()
    finite = torch.isfinite(eager)
    if not torch.equal(finite, torch.isfinite(compiled)):
        return "NaN or infinite where eager is not, or not where it is"

    def largest(x: torch.Tensor) -> float:
        return float(x[finite].abs().max()) if bool(finite.any()) else 0.0

    reference, own = eager, 0.0
    if isinstance(exact, torch.Tensor) and exact.shape == eager.shape:
        own = largest(eager - exact.double())
        # Random numbers that float64 draws otherwise, or a branch that it takes otherwise, are no rounding.
        if not math.isfinite(own) or own > 0.1 * largest(exact.double()) > 0.01 * largest(eager):
            own = 0.0
        else:
            reference = exact.double()
    error, allowed = largest(compiled - reference), max(1e-7, relative * largest(reference), 10 * own)
    return None if error <= allowed else f"off by {error:.1e}; {allowed:.1e} is allowed"


def check(
    graph: Callable[..., Any],
    make_inputs: Callable[[], list[Any]],
    held: Sequence[int],
    backend: Any,
    seed: int,
    relative: float,
) -> int:
    """Compare the compiled graph with eager. Return 1 if they differ, which is the fault, and 0 if not."""
    want = observe(graph, make_inputs, held, None, seed)
    try:
        exact = observe(graph, make_inputs, held, None, seed, wide=True)
    except Exception:
        exact = {}
    try:
        have = observe(graph, make_inputs, held, backend, seed)
    except Exception as error:
        print(f"FAULT the compiled graph raises {type(error).__name__}: {str(error).splitlines()[0]}")
        return 1
    found = {name: differs(want[name], have.get(name), exact.get(name), relative) for name in want}
    for name, problem in found.items():
        if problem is not None:
            print(f"FAULT {name}: {problem}")
    faulty = any(problem is not None for problem in found.values())
    print("the fault shows" if faulty else "no fault")
    return int(faulty)


# --- to here ---

__all__ = ["Model", "check", "differs", "observe", "random_tensor", "sys"]
