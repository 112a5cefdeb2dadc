"""Every dtype keeps its name, range and precision; mixtures promote as in eager."""

from __future__ import annotations

from typing import Any

import torch

from aot_core.testing.check import check
from aot_core.testing.subject import Subject


def _train(subject: Subject) -> Any:
    x, w = subject.randn(3, 4, grad=True), subject.randn(4, 2, grad=True)

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w) * 0.5

    out = subject.compile(layer)(x, w)
    out.sum().backward()
    return {"out": out, "x.grad": x.grad, "w.grad": w.grad}


@check(dtype=torch.float64)
def float64(subject: Subject) -> Any:
    """float64 is computed in float64."""
    return _train(subject)


@check(dtype=torch.float32)
def float32(subject: Subject) -> Any:
    """float32 training is as precise as eager's."""
    return _train(subject)


@check(dtype=torch.float16)
def float16(subject: Subject) -> Any:
    """float16 training is as precise as eager's."""
    return _train(subject)


@check(dtype=torch.bfloat16)
def bfloat16(subject: Subject) -> Any:
    """bfloat16 training is as precise as eager's."""
    return _train(subject)


@check(dtype=torch.complex64)
def complex64(subject: Subject) -> Any:
    """Complex numbers, their conjugates and their gradients are eager's."""
    x = subject.randn(4, grad=True)

    def product(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * x.conj() * 2 + x, x.abs()

    out, size = subject.compile(product)(x)
    (out.real.sum() + 2 * out.imag.sum() + size.sum()).backward()
    return {"out": out, "abs": size, "input.grad": x.grad}


@check()
def integers(subject: Subject) -> Any:
    """Integers of every width are exact, up to the largest, and divide as in eager."""

    def arithmetic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, x // 2, x % 3, x.bitwise_and(5), x / 2

    run = subject.compile(arithmetic)
    outputs = {}
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        largest = torch.iinfo(dtype).max
        x = subject.place(torch.tensor([0, 1, 7, largest // 2, largest - 1], dtype=dtype))
        outputs[str(dtype)] = run(x)
    return outputs


@check()
def integer_overflow(subject: Subject) -> Any:
    """Integers wrap around at the end of their range."""
    x = subject.place(torch.tensor([250, 255, 3], dtype=torch.uint8))
    y = subject.place(torch.tensor([120, 127, -128], dtype=torch.int8))
    run = subject.compile(lambda x: (x + 10, x * 2))
    return {"uint8": run(x), "int8": run(y)}


@check()
def booleans(subject: Subject) -> Any:
    """Comparisons and logic give bool, and bool counts as 0 and 1."""
    x = subject.randn(5)

    def logic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positive = x > 0
        return positive, ~positive & (x < 1), positive.sum(), positive.any(), torch.where(positive, x, -x)

    return {"outputs": subject.compile(logic)(x)}


@check()
def special_values(subject: Subject) -> Any:
    """Infinities and NaNs come out where eager has them."""
    x = subject.place(torch.tensor([-1.0, 0.0, 1.0, float("inf"), float("nan")]))

    def special(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 1 / x, x.log(), x - x, torch.maximum(x, x.flip(0)), x.isnan()

    return {"outputs": subject.compile(special)(x)}


@check()
def type_promotion(subject: Subject) -> Any:
    """Mixed dtypes, Python scalars and zero-dimensional tensors promote as in eager."""
    ints = subject.place(torch.tensor([1, 2, 3]))
    half = subject.place(torch.tensor([0.5, 1.5, 2.5])).to(torch.float16)
    scalar = subject.place(torch.tensor(2.5))

    def mix(ints: torch.Tensor, half: torch.Tensor, scalar: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ints + half, ints * 1.5, half + scalar, half * 2, ints / ints, ints > 1.5

    outputs = subject.compile(mix)(ints, half, scalar)
    return {"dtypes": [str(out.dtype) for out in outputs], "values": [out.tolist() for out in outputs]}
