"""Faults sown into the translator, one at a time: the checks on the reference interpreter have to notice them.

A fault changes what the rules say: another operation, operands exchanged, a cast left out, a wrong dimension, constant
or bound. It counts as caught if a check gives another dtype, shape or value than eager PyTorch, or is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from regions import graph_of, reference_executor
from torch.utils import _pytree as pytree

from aot_partition.nvfuser.definition import Recorder, Value

aten = torch.ops.aten

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A change of every call of one operation.

    Args:
        name: What it is called.
        operation: Whose calls.
        change: Returns what is said instead, or the number of an argument to use as the result.
    """

    name: str
    operation: str
    change: Callable[[tuple[Any, ...], dict[str, Any]], Call | int]


def instead(operation: str, other: str) -> Fault:
    return Fault(f"{operation} → {other}", operation, lambda args, named: (other, args, named))


def exchanged(operation: str, one: int = 0, other: int = 1) -> Fault:
    def change(args, named):
        said = list(args)
        said[one], said[other] = said[other], said[one]
        return operation, tuple(said), named

    return Fault(f"{operation} with operands {one}, {other} exchanged", operation, change)


def left_out(operation: str, argument: int = 0) -> Fault:
    return Fault(f"{operation} left out (operand {argument})", operation, lambda args, named: argument)


def changed(operation: str, place: int, how: Callable[[Any], Any], what: str) -> Fault:
    def change(args, named):
        said = list(args)
        said[place] = how(said[place])
        return operation, tuple(said), named

    return Fault(f"{operation}: {what}", operation, change)


def constant(what: str, wanted: type, how: Callable[[Any], Any]) -> Fault:
    def change(args, named):
        number = args[0]
        if type(number) is wanted:
            return "define_scalar", (how(number), *args[1:]), named
        return "define_scalar", args, named

    return Fault(f"constants: {what}", "define_scalar", change)


def shifted(dims: Any) -> Any:
    return tuple((dim + 1) % 3 for dim in dims) if isinstance(dims, (tuple, list)) else (dims + 1) % 2


NEIGHBOURS = (
    "add:sub sub:add mul:add truediv:mul truediv:div div:truediv pow:mul maximum:minimum minimum:maximum "
    "fmod:remainder remainder:fmod atan2:truediv eq:ne ne:eq lt:le le:lt gt:ge ge:gt lt:gt gt:lt le:ge "
    "ge:le logical_and:logical_or logical_or:logical_and bitwise_and:bitwise_or bitwise_or:bitwise_xor "
    "bitwise_xor:bitwise_and bitwise_left_shift:bitwise_right_shift "
    "bitwise_right_shift:bitwise_left_shift exp:expm1 exp2:exp expm1:exp log:log1p log2:log10 log10:log2 "
    "log1p:log sqrt:rsqrt rsqrt:sqrt sin:cos cos:sin tan:tanh tanh:tan sinh:asinh cosh:acosh asin:acos "
    "acos:asin atan:tanh asinh:sinh atanh:atan acosh:cosh erf:erfc erfc:erf erfinv:erf sigmoid:tanh "
    "reciprocal:neg abs:neg neg:abs ceil:floor floor:ceil round:trunc trunc:round frac:trunc relu:abs "
    "silu:sigmoid isnan:isinf isinf:isnan isfinite:isnan isposinf:isneginf isneginf:isposinf "
    "signbit:isnan lgamma:exp sum:max max:min min:max prod:sum cumsum:cumprod cumprod:cumsum "
    "gather:take_along_axis nextafter:maximum gcd:maximum"
)
FAULTS = [
    *(instead(*pair.split(":")) for pair in NEIGHBOURS.split()),
    *(
        exchanged(name)
        for name in ["sub", "truediv", "div", "pow", "fmod", "remainder", "atan2", "lt", "le", "gt", "ge"]
    ),
    *(exchanged(name) for name in ["bitwise_left_shift", "bitwise_right_shift", "nextafter"]),
    exchanged("where", 1, 2),
    *(
        left_out(name)
        for name in ["cast", "broadcast", "expand", "permute", "squeeze", "reshape", "slice", "pad"]
    ),
    *(left_out(name) for name in ["neg", "abs", "logical_not", "bitwise_not", "add", "mul"]),
    left_out("where", 1),
    left_out("where", 2),
    *(changed(name, 1, shifted, "another dimension") for name in ["sum", "max", "min", "prod", "var_mean"]),
    *(changed(name, 1, shifted, "another dimension") for name in ["cumsum", "cat", "argsort"]),
    *(
        changed(name, 2, shifted, "another dimension")
        for name in ["gather", "index_select", "take_along_axis"]
    ),
    changed("scatter", 3, shifted, "another dimension"),
    changed("permute", 1, lambda dims: tuple(reversed(dims)), "the order reversed"),
    changed("broadcast", 1, lambda mask: tuple(reversed(mask)), "the dimensions reversed"),
    changed("slice", 1, lambda starts: tuple(max(0, s - 1) for s in starts), "starts one earlier"),
    changed("slice", 2, lambda ends: tuple(e - 1 for e in ends), "ends one earlier"),
    changed("pad", 1, lambda widths: tuple(reversed(widths)), "widths reversed"),
    changed("var_mean", 2, lambda correction: 0, "the correction forgotten"),
    changed("argsort", 2, lambda descending: not descending, "the other direction"),
    changed("topk", 3, lambda largest: not largest, "the other end"),
    changed("cast", 1, lambda dtype: torch.float64 if dtype is torch.float32 else dtype, "double for float"),
    changed("cast", 1, lambda dtype: torch.float32 if dtype is torch.int64 else dtype, "float for int"),
    changed("full", 2, lambda dtype: torch.float64, "a double"),
    changed("cat", 0, lambda parts: tuple(reversed(parts)), "the parts reversed"),
    constant("floats a thousandth larger", float, lambda x: x * 1.001),
    constant("floats with six digits", float, lambda x: float(f"{x:.6g}")),
    constant("floats negated", float, lambda x: -x),
    constant("integers one larger", int, lambda x: x + 1),
    constant("integers one smaller", int, lambda x: x - 1),
    constant("truths turned", bool, lambda x: not x),
]

f32 = torch.tensor([[0.5, -1.5, 2.5, 0.25], [1.75, 0.25, -0.5, 3.0], [-2.25, 0.5, 0.5, -0.75]])
unit = f32 / 4
other = torch.tensor([[0.5, 2.0, -2.5, 0.75], [1.5, -0.25, 0.5, 2.0], [2.0, 0.5, -0.25, 1.5]])
i64 = torch.tensor([[5, -3, 7, 2], [4, 4, -6, 1], [-9, 0, 3, 8]])
by = torch.tensor([[2, 2, -3, 2], [3, 4, 4, 1], [2, 5, -2, 3]])
odd = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1.0, 0.0])
bf16 = torch.linspace(-2, 2, 64).reshape(4, 16).bfloat16()
places = torch.tensor([[1, 0], [2, 1]])
truth = f32 > 0.5

CHECKS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y, aten.rsub.Scalar(x, 2.5)), (f32, other)),
    "alpha": (lambda x, y: (aten.add.Tensor(x, y, alpha=2), aten.sub.Tensor(x, y, alpha=3)), (f32, other)),
    "numbers": (lambda x: (x + 1.1, x * (1 / 3), 2.5 - x, aten.pow.Tensor_Scalar(x, 3)), (f32.double(),)),
    "powers": (lambda x, y: (x.abs() ** y, aten.pow.Scalar(1.5, y)), (f32, other)),
    "remainders": (
        lambda x, y: (aten.fmod.Tensor(x, y), aten.remainder.Tensor(x, y), aten.atan2.default(x, y)),
        (f32, other),
    ),
    "integers": (
        lambda x, y: (x / y, aten.div.Tensor_mode(x, y, rounding_mode="trunc"), x // y, x + 3, x % y),
        (i64, by),
    ),
    "integer remainders": (lambda x, y: (aten.fmod.Tensor(x, y), aten.gcd.default(x, y)), (i64, by)),
    "extremes": (
        lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 1), torch.fmax(x, y)),
        (f32, other),
    ),
    "comparisons": (lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), (f32, other)),
    "comparisons with a number": (
        lambda x: (x == 0.5, x != 0.5, x < 0.5, x <= 0.5, x > 0.5, x >= 0.5),
        (f32,),
    ),
    "logic": (lambda x, y: (x & y, x | y, x ^ y, ~x, torch.logical_xor(x, y)), (truth, other > 0.6)),
    "logic of numbers": (lambda x: (torch.logical_not(x), torch.logical_and(x, x - 4)), (i64,)),
    "bits": (lambda x, y: (x & y, x | y, x ^ y, ~x), (i64, by)),
    "shifts": (
        lambda x, y: (torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, y)),
        (i64, by.abs()),
    ),
    "exponentials": (
        lambda x: (x.exp(), torch.exp2(x), torch.expm1(x), torch.sinh(x), torch.cosh(x)),
        (f32,),
    ),
    "logarithms": (
        lambda x: (x.log(), x.log2(), x.log10(), x.log1p(), x.sqrt(), x.rsqrt(), torch.lgamma(x)),
        (f32.abs(),),
    ),
    "angles": (
        lambda x: (x.sin(), x.cos(), x.tan(), x.tanh(), x.asin(), x.acos(), x.atan(), x.atanh()),
        (unit,),
    ),
    "hyperbolic": (lambda x: (torch.asinh(x), torch.acosh(x.abs() + 1)), (f32,)),
    "errors": (
        lambda x: (torch.erf(x), torch.erfc(x), torch.erfinv(x), torch.sigmoid(x), x.reciprocal()),
        (unit,),
    ),
    "signs": (lambda x: (x.abs(), -x, torch.relu(x), torch.sign(x), aten.silu.default(x)), (f32,)),
    "rounding": (lambda x: (x.ceil(), x.floor(), x.round(), x.trunc(), x.frac()), (f32,)),
    "odd numbers": (
        lambda x: (
            x.isnan(),
            x.isinf(),
            x.isfinite(),
            torch.isposinf(x),
            torch.isneginf(x),
            torch.signbit(x),
        ),
        (odd,),
    ),
    "odd choices": (lambda x: (torch.nan_to_num(x), aten.amax.default(x), torch.sign(x)), (odd,)),
    "next": (lambda x, y: torch.nextafter(x, y), (f32.double(), other.double())),
    "choices": (
        lambda c, x, y: (torch.where(c, x, y), aten.masked_fill.Scalar(x, c, 2.5)),
        (truth, f32, other),
    ),
    "16 bits": (lambda x: (x * x + 1, x.sum(1), x.exp(), x > 0.5, aten.mean.dim(x, [0])), (bf16,)),
    "sums": (lambda x: (x.sum(0), x.sum(1, keepdim=True), x.prod(1), x.mean(0), x.sum()), (f32,)),
    "extremes of many": (lambda x: (x.amax(0), x.amin(1), aten.max.dim(x, 1), x.argmin(0)), (f32,)),
    "variances": (
        lambda x: (aten.var.correction(x, [1], correction=1), aten.var_mean.correction(x, [0], correction=2)),
        (f32,),
    ),
    "truth of many": (lambda x: (x.any(1), x.all(0)), (truth,)),
    "scans": (lambda x: (x.cumsum(1), x.cumprod(0), x.cumsum(0)), (f32,)),
    "moves": (lambda x: (x.t() * 2 + 1, x[1:, 1:3] * 2, x.unsqueeze(1) * x, x.reshape(2, 6) + 1), (f32,)),
    "moves in three": (lambda x: x.permute(1, 2, 0) * 2, (torch.arange(24.0).reshape(2, 3, 4),)),
    "picked": (lambda x: (x[1] + 1, x.select(1, -1) * 2, x.expand(2, 3, 4) * 2), (f32,)),
    "joined": (lambda x, y: (torch.cat([x * 2, y], 0), torch.cat([x, y * 2], 1)), (f32, other)),
    "padded": (lambda x: aten.constant_pad_nd.default(x * 2, [1, 2, 0, 3], 0.75), (f32,)),
    "gathered": (lambda x, i: (x.gather(1, i), x.gather(0, i), x * 2), (f32, places)),
    "scattered": (lambda x, i: (x.scatter(1, i, 2.5), x.scatter(0, i, x)), (f32, places)),
    "selected": (
        lambda x, i: (x.index_select(0, i), x.index_select(1, i), x[:, i] * 2),
        (f32, torch.tensor([2, 0])),
    ),
    "counted from the end": (lambda x, i: x[i] * 2, (f32, torch.tensor([-1, 1]))),
    "sorted": (
        lambda x: (aten.sort.default(x, 1), aten.sort.default(x, 0, True), aten.topk.default(x, 2, 1)),
        (f32.add(unit),),
    ),
    "factories": (
        lambda x: (x * torch.arange(4), torch.full_like(x, 1 / 3) + x, torch.zeros_like(x) + 1),
        (f32,),
    ),
    "conversions": (lambda x: (x.long(), x.bool(), x.double() * (1 / 3), (x > 0).float()), (f32,)),
    "a float of integers": (lambda x: (x * 0.3, x > 0.5, x.float().sum(0)), (i64,)),
}


@pytest.fixture(scope="module")
def traced():
    """Every check as a graph, with eager's results."""
    made = {}
    for name, (function, inputs) in CHECKS.items():
        made[name] = graph_of(function, inputs), inputs, pytree.tree_leaves(function(*inputs))
    return made


def passes(graph, inputs, wanted) -> bool:
    try:
        got = reference_executor().compile_region(graph, [])(list(inputs))
        for one, expected in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, expected, equal_nan=True)
    except Exception:
        return False
    return True


def sow(monkeypatch, fault: Fault) -> None:
    said = Recorder._call

    def call(self, name, *args, results=None, **named):
        if name.removeprefix("ops.") != fault.operation:
            return said(self, name, *args, results=results, **named)
        new = fault.change(args, named)
        if isinstance(new, int):
            assert isinstance(args[new], Value)
            return args[new]
        operation, args, named = new
        return said(self, name.replace(fault.operation, operation), *args, results=results, **named)

    monkeypatch.setattr(Recorder, "_call", call)


def test_the_checks_pass_without_a_fault(traced):
    assert [name for name, check in traced.items() if not passes(*check)] == []


def test_faults_are_caught(traced, monkeypatch):
    escaped = []
    for fault in FAULTS:
        with monkeypatch.context() as patch:
            sow(patch, fault)
            if all(passes(*check) for check in traced.values()):
                escaped.append(fault.name)
    caught = len(FAULTS) - len(escaped)
    print(f"{caught} of {len(FAULTS)} faults caught; escaped: {escaped}")
    assert len(FAULTS) >= 100
    assert caught >= 0.95 * len(FAULTS), escaped
