"""Inputs that share memory and are written: compiled as eager runs them, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import aot_core
from aot_core.aliasing import dealias
from aot_core.aliasing.effects import find_effects
from aot_core.aliasing.memory import is_leaf
from aot_core.backward_variants import AbstractInputs
from aot_core.debug import aot_core_eager, aot_inductor_debug

# torch looks at .grad of every input it makes a fake tensor for.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

Inputs = tuple[Any, ...]
Make = Callable[[torch.Tensor], Inputs]


def write_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + 1


def write_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    y.add_(1)
    return x.sum() * y


def write_and_return_views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.mul_(2)
    return y.view(-1), x[1:], y


def write_and_transpose(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.add_(1)
    x.t_()
    return y * 2, x


def write_hidden(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x.sin().sum() + y.sum()


def overlap(first: slice, second: slice) -> Make:
    return lambda base: (base[first], base[second])


LEFT, RIGHT, MIDDLE = slice(0, 4), slice(4, 8), slice(2, 6)
SHARED: dict[str, Make] = {
    "overlapping": overlap(LEFT, MIDDLE),
    "disjoint": overlap(LEFT, RIGHT),
    "equal": overlap(LEFT, LEFT),
    "base and view": lambda base: (base, base[MIDDLE]),
    "view and base": lambda base: (base[MIDDLE], base),
    "transposed": lambda base: (base.view(2, 4), base.view(2, 4).t()),
    "strided": lambda base: (base[::2], base[1:6]),
    "separate": lambda base: (base[LEFT] * 1, base[RIGHT] * 1),
}


def observe(function: Callable[..., Any], make: Make, *, train: bool, calls: list[Make]) -> list[Any]:
    """Return all that a user can see of a function's calls: outputs, inputs, relations, gradients."""
    seen: list[Any] = []
    for make_inputs in [make, *calls]:
        leaf = torch.linspace(-1, 1, 8, dtype=torch.float64).requires_grad_(train)
        base = leaf * 1
        with torch.set_grad_enabled(train):
            inputs = make_inputs(base)
            result = function(*inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        tensors = [*inputs, *outputs]
        seen += [(t.detach().clone(), t.size(), t.stride(), t.storage_offset()) for t in tensors]
        seen += [t.requires_grad for t in tensors]
        addresses = [t.untyped_storage().data_ptr() for t in tensors]
        seen += [[a == b for b in addresses] for a in addresses]
        seen += [[output is i for i in inputs] for output in outputs]
        if train:
            loss = sum((t * t).sum() for t in [*outputs, base] if t.requires_grad)
            seen.append(torch.autograd.grad(loss, leaf))
    return seen


FUNCTIONS = [write_first, write_both, write_and_return_views, write_hidden]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_shared_inputs(function: Any, shared: str, train: bool) -> None:
    if shared == "transposed" and function is write_and_return_views:
        pytest.skip("a transposed tensor has no flat view in eager")
    wanted = observe(function, SHARED[shared], train=train, calls=[])
    compiled = torch.compile(function, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, SHARED[shared], train=train, calls=[]), wanted)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_shared_inputs_through_decompositions_and_recomputation(function: Any) -> None:
    wanted = observe(function, SHARED["overlapping"], train=True, calls=[])
    compiled = torch.compile(function, backend=aot_inductor_debug)
    torch.testing.assert_close(observe(compiled, SHARED["overlapping"], train=True, calls=[]), wanted)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "calls",
    [
        ("separate", "overlapping", "separate"),
        ("overlapping", "separate", "overlapping"),
        ("disjoint", "equal", "overlapping"),
    ],
    ids=" then ".join,
)
def test_sharing_that_changes_between_calls(calls: tuple[str, ...], train: bool) -> None:
    first, *rest = (SHARED[name] for name in calls)
    wanted = observe(write_both, first, train=train, calls=rest)
    compiled = torch.compile(write_both, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, first, train=train, calls=rest), wanted)


def test_an_overlap_that_moves(reports: list[aot_core.CompileReport]) -> None:
    makes = [overlap(slice(0, 3), slice(start, start + 3)) for start in (3, 1, 2, 1, 3)]
    first, *rest = makes
    wanted = observe(write_first, first, train=False, calls=rest)
    compiled = torch.compile(write_first, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, first, train=False, calls=rest), wanted)
    assert len([d for r in reports for d in r.decisions if d.code == "aliased-inputs"]) == 3


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_metadata_of_a_shared_input(train: bool) -> None:
    def make(base: torch.Tensor) -> Inputs:
        return base.view(2, 4), base.view(4, 2)

    wanted = observe(write_and_transpose, make, train=train, calls=[make])
    compiled = torch.compile(write_and_transpose, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, make, train=train, calls=[make]), wanted)


def test_dynamic_sizes() -> None:
    compiled = torch.compile(write_first, backend=aot_core_eager, dynamic=True)
    for n in (3, 4, 6):
        for function in (write_first, compiled):
            base = torch.arange(10.0)
            out = function(base[:n], base[2 : n + 2])
            torch.testing.assert_close(base[:n], torch.arange(10.0)[:n] * 2)
            want = torch.arange(10.0)[2 : n + 2] + 1
            want[: n - 2] += torch.arange(10.0)[2:n]
            torch.testing.assert_close(out, want)


def test_a_detached_alias_of_a_differentiable_input() -> None:
    def make(base: torch.Tensor) -> Inputs:
        return base, base.detach()[:2]

    wanted = observe(write_hidden, make, train=True, calls=[])
    compiled = torch.compile(write_hidden, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, make, train=True, calls=[]), wanted)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_different_dtypes_over_one_memory(train: bool) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x * 2

    def make(base: torch.Tensor) -> Inputs:
        return base[:4], base.detach().view(torch.int32)[2:9]

    wanted = observe(f, make, train=train, calls=[])
    compiled = torch.compile(f, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, make, train=train, calls=[]), wanted)


@pytest.mark.parametrize("make", [lambda leaf: leaf, lambda leaf: leaf[1:3], lambda leaf: leaf.clone()])
def test_a_hidden_write_to_a_view_of_a_leaf(make: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.detach().add_(0.5)
        return x * 2

    seen = []
    for function in (f, torch.compile(f, backend=aot_core_eager)):
        leaf = torch.ones(4, requires_grad=True)
        x = make(leaf)
        (function(x).sum() + x.sum()).backward()
        seen.append((leaf.grad, leaf.detach(), x.detach()))
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize(
    "part", [lambda x: x.chunk(2)[1], lambda x: x.unbind(1)[0], lambda x: x.split([1, 3])[1]]
)
def test_a_part_of_a_written_input_stays_a_view_of_it(part: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(0.5)
        return part(x)

    x = torch.ones(4, 2, requires_grad=True).clone()
    out = torch.compile(f, backend=aot_core_eager)(x)
    assert out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    torch.testing.assert_close(out, part(x))
    assert (out.stride(), out.storage_offset()) == (part(x).stride(), part(x).storage_offset())


def of_input(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        view = x[1:]
    return view, x * 2


def of_intermediate(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    with torch.no_grad():
        view = y[1:]
    return view, y


def test_a_view_of_what_is_not_returned() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        with torch.no_grad():
            return y.flatten(), x

    x = torch.ones(2, 3, requires_grad=True) * 1
    out, same = torch.compile(f, backend=aot_core_eager)(x)
    assert (out.requires_grad, out.grad_fn, same is x) == (True, None, True)
    torch.testing.assert_close(out.detach(), torch.full((6,), 2.0))


def test_equal_views_of_something_returned_made_with_and_without_gradients() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        recorded = y.select(0, 1)
        with torch.no_grad():
            unrecorded = y.select(0, 1)
        return y, recorded, unrecorded

    seen = []
    for run in (f, torch.compile(f, backend=aot_core_eager)):
        x = torch.arange(3.0, requires_grad=True) * 1
        outputs = run(x)
        assert len({out.untyped_storage().data_ptr() for out in outputs}) == 1
        seen.append([(out.detach(), out.requires_grad, out.storage_offset()) for out in outputs])
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("function", [of_input, of_intermediate])
def test_a_view_made_under_no_grad_passes_no_gradient(function: Any) -> None:
    seen = []
    for run in (function, torch.compile(function, backend=aot_core_eager)):
        leaf = torch.ones(4, requires_grad=True)
        x = leaf * 1
        view, y = run(x)
        whole = x if function is of_input else y
        assert view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        seen.append((view.detach(), view.requires_grad, view.grad_fn is None))
        seen.append(torch.autograd.grad(y.sum() + (view * 3).sum(), leaf))
    assert seen[:2][0][1:] == seen[2:][0][1:] == (True, True)
    torch.testing.assert_close(seen[2:], seen[:2])


@pytest.mark.parametrize("function", [of_input, lambda x: (x[1:].t(), x.mul_(2))[0]])
def test_a_view_made_without_gradients_says_that_it_requires_one(function: Any) -> None:
    """So it does in eager, even if all happens under no_grad: its base requires one."""

    def without_gradients(run: Any) -> tuple[Any, ...]:
        x = torch.ones(2, 3, requires_grad=True) * 1
        with torch.no_grad():
            out = run(x)
        out = out[0] if isinstance(out, tuple) else out
        x[1] = 5
        return out.detach(), out.requires_grad, out.stride(), out.storage_offset()

    wanted = without_gradients(function)
    assert wanted[1]
    seen = without_gradients(torch.compile(function, backend=aot_core_eager))
    assert seen[1:] == wanted[1:]
    torch.testing.assert_close(seen[0], wanted[0])


def test_what_is_computed_from_such_a_view_requires_a_gradient_that_leads_nowhere() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            view = x[1:]
        return view * 2, x.detach() * 2

    seen = []
    for run in (f, torch.compile(f, backend=aot_core_eager)):
        leaf = torch.ones(4, requires_grad=True)
        dead, free = run(leaf * 1)
        seen.append((dead.requires_grad, dead.is_leaf, free.requires_grad, dead.tolist()))
        (dead.sum() + leaf.sum()).backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [1, 1, 1, 1]
    assert seen[1] == seen[0]
    assert seen[0][:3] == (True, False, False)


def test_a_view_made_under_no_grad_of_what_leads_nowhere() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            turned = x.t()
        whole = turned.sin()
        with torch.no_grad():
            view = whole.unsqueeze(0)
        return whole.chunk(2)[0], whole, view

    seen = []
    for run in (f, torch.compile(f, backend=aot_core_eager)):
        base = torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=True).view(2, 2) * 1
        outputs = run(base)
        seen.append([(x.requires_grad, x.size(), x.stride(), x.tolist()) for x in outputs])
    assert seen[1] == seen[0]
    assert all(requires_grad for requires_grad, *_ in seen[0])


def hidden_and_recorded(x: torch.Tensor) -> torch.Tensor:
    x.sin_()
    x.detach().add_(1)
    return x * 2


def hidden_and_recorded_in_one_memory(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    with torch.no_grad():
        y.add_(1)
    return x.sum() + y.sum()


def returned_alias_with_a_history(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    alias = x.detach()
    alias.copy_(y)
    return alias, x * 3, y


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (hidden_and_recorded, lambda b: (b[:4],)),
        (hidden_and_recorded_in_one_memory, overlap(LEFT, MIDDLE)),
        (returned_alias_with_a_history, lambda b: (b[:4] * 1, b[4:])),
        (returned_alias_with_a_history, overlap(LEFT, RIGHT)),
        (returned_alias_with_a_history, lambda b: (b.view(2, 4).t(), b.view(4, 2).flip(0))),
    ],
)
def test_writes_that_autograd_does_not_connect(function: Any, make: Make) -> None:
    wanted = observe(function, make, train=True, calls=[make])
    compiled = torch.compile(function, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, make, train=True, calls=[make]), wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda b: (b, *((d := b.detach())[:8], d[2:6])),
        lambda b: (b[1:3], *((d := b.detach())[5:7], d[2:6])),
    ],
)
def test_a_detached_input_that_gains_a_history(make: Make) -> None:
    """And with it all views of the same detached tensor."""

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y.add_(x, alpha=0.5)
        return z * 2, x + 1

    wanted = observe(f, make, train=True, calls=[make])
    example = make(torch.ones(8, dtype=torch.float64, requires_grad=True) * 1)
    compiled = aot_core_eager(torch.fx.symbolic_trace(f), list(example))
    torch.testing.assert_close(observe(compiled, make, train=True, calls=[make]), wanted)
    compiled(*example)
    example[1].unsqueeze_(0)  # legal as for any view of what is no leaf


def test_a_view_of_a_detached_input_that_gains_a_history() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.copy_(y)
        return x[1:], x.view(2, 2).t()

    def make(base: torch.Tensor) -> Inputs:
        return base.detach()[1:5], base[1:5]

    wanted = observe(f, make, train=True, calls=[make])
    torch.testing.assert_close(
        observe(torch.compile(f, backend=aot_core_eager), make, train=True, calls=[make]), wanted
    )


@pytest.mark.parametrize("make", [lambda b: (b[2:6],), lambda b: (b * 1,), lambda b: (b.view(2, 4)[:, 1:],)])
def test_a_write_through_an_older_view_of_what_is_reshaped(make: Make) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = x.select(0, 1)
        x.unsqueeze_(0)
        old.mul_(3)
        return old, x + 1

    wanted = observe(f, make, train=False, calls=[make])
    graph = torch.fx.symbolic_trace(f)
    leaf = torch.linspace(-1, 1, 8, dtype=torch.float64)
    compiled = aot_core_eager(graph, list(make(leaf * 1)))
    torch.testing.assert_close(observe(compiled, make, train=False, calls=[make]), wanted)


def test_a_write_without_gradients_to_a_view_of_what_was_turned() -> None:
    """Scattering into strides that are no contiguous tensor's is refused for what requires a gradient, in any mode."""

    def f(x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        x.add_(0.5)
        return whole * 2

    seen = []
    for run in (f, torch.compile(f, backend=aot_core_eager)):
        base = torch.linspace(0, 1, 24, dtype=torch.float64, requires_grad=True).view(4, 6) * 1
        diagonal = base.diagonal()
        with torch.no_grad():
            base.transpose_(0, 1)
            seen.append((run(diagonal, base).tolist(), base.tolist(), diagonal.requires_grad))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", [lambda b: (b[::2],), lambda b: (b.as_strided((2, 3), (4, 1), 1),)])
@pytest.mark.parametrize("again", [lambda x: x.reshape(-1), lambda x: x.contiguous()])
def test_strides_that_decide_between_a_view_and_a_copy(again: Any, make: Make, train: bool) -> None:
    """What AOTAutograd has in the place of a written input has strides of its own."""

    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(0.5)
        y = again(x)
        y.mul_(3)
        return y

    wanted = observe(f, make, train=train, calls=[])
    compiled = torch.compile(f, backend=aot_core_eager)
    torch.testing.assert_close(observe(compiled, make, train=train, calls=[]), wanted)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_views_of_written_inputs_of_symbolic_size(train: bool) -> None:
    """What AOTAutograd returns has the geometry of the new values: their strides, and offset 0."""

    def f(x: torch.Tensor) -> torch.Tensor:
        x.sin_()
        return x[: x.shape[0] // 2]

    compiled = torch.compile(f, backend=aot_core_eager, dynamic=True)
    for n in (3, 2, 3):
        make = overlap(slice(1, 1 + 2 * n, 2), LEFT)
        wanted = observe(f, lambda b, make=make: make(b)[:1], train=train, calls=[])
        seen = observe(compiled, lambda b, make=make: make(b)[:1], train=train, calls=[])
        torch.testing.assert_close(seen, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_a_tensor_without_dimensions_is_no_float_of_dynamos(dtype: torch.dtype, scale: float | None) -> None:
    """torch's own wrapper loses the write, 2.10 to 2.13, whether or not a float is among the arguments."""

    def f(count: torch.Tensor, x: torch.Tensor, scale: float | None) -> torch.Tensor:
        count.add_(1)
        return x * scale if scale is not None else x + 1

    compiled = torch.compile(f, backend=aot_core_eager)
    for step in range(3):
        count, x = torch.tensor(10, dtype=dtype), torch.ones(3)
        varying = None if scale is None else scale + step
        torch.testing.assert_close(compiled(count, x, varying), f(torch.tensor(0), x, varying))
        assert count.item() == 11


def test_an_input_of_which_autograd_tells_nothing() -> None:
    base = torch.ones(4, requires_grad=True) * 1
    with torch.inference_mode():
        view = base[1:]
    base.mul_(2)
    with pytest.raises(RuntimeError, match="created in inference mode"):
        _ = view.is_leaf
    assert is_leaf(view)
    AbstractInputs(torch.fx.symbolic_trace(lambda x: x.sin()), [view])  # raises nothing


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "no dynamo"])
@pytest.mark.parametrize("size", [4, 3], ids=["equal sizes", "other sizes"])
@pytest.mark.parametrize("again", [lambda x: x, lambda x: x.contiguous(), lambda x: x.add_(1)])
def test_a_written_input_is_returned_beside_one_that_is_written_outside_of_the_graph(
    again: Any, size: int, dynamo: bool
) -> None:
    """AOTAutograd puts the one in the place of the other's new value."""

    def function(buffer: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        buffer.mul_(3)
        return again(buffer), x.sum()

    def make(base: torch.Tensor) -> Inputs:
        return torch.linspace(2, 3, size, dtype=torch.float64), base[:4] * 1

    eager = observe(function, make, train=True, calls=[make])
    if dynamo:
        compiled = torch.compile(function, backend=aot_core_eager)
    else:
        compiled = aot_core_eager(
            torch.fx.symbolic_trace(function),
            list(make(torch.ones(8, dtype=torch.float64).requires_grad_() * 1)),
        )
    torch.testing.assert_close(observe(compiled, make, train=True, calls=[make]), eager)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "no dynamo"])
@pytest.mark.parametrize("make", [lambda x: x.detach(), lambda x: x.sin(), lambda x: x[1:]])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_what_is_returned_twice_is_one_tensor(make: Any, train: bool, dynamo: bool) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = make(x)
        return x * 2, part.contiguous(), part

    x = torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=train)
    if dynamo:
        compiled = torch.compile(function, backend=aot_core_eager)
    else:
        compiled = aot_core_eager(torch.fx.symbolic_trace(function), [x])
    doubled, again, part = compiled(x)
    assert again is part and doubled is not part
    for got, expected in zip((doubled, again), function(x)[:2], strict=True):
        assert got.requires_grad == expected.requires_grad
        torch.testing.assert_close(got, expected)
    if part.requires_grad:
        (gradient,) = torch.autograd.grad((again * part).sum(), x)
        torch.testing.assert_close(gradient, torch.autograd.grad(function(x)[1].square().sum(), x)[0])


class TestWithoutDynamo:
    """Dynamo hands a tensor that is passed twice over once; other callers don't."""

    def test_one_tensor_twice(self) -> None:
        graph = torch.fx.symbolic_trace(lambda x, y: (x.add_(1), y * 2))
        compiled = aot_core_eager(graph, [torch.ones(2), torch.ones(2)])
        x = torch.ones(2)
        written, doubled = compiled(x, x)
        assert written is x
        torch.testing.assert_close((x, doubled), (torch.full((2,), 2.0), torch.full((2,), 4.0)))

    def test_one_tensor_twice_in_training(self) -> None:
        graph = torch.fx.symbolic_trace(lambda x, y: (x.mul_(3).sin() * y,))
        found = []
        for function in (graph, aot_core_eager(graph, 2 * [torch.ones(2, requires_grad=True) * 1])):
            leaf = torch.linspace(0, 1, 4).requires_grad_()
            x = leaf * 1
            (out,) = function(x, x)
            found.append(torch.autograd.grad(out.sum() + x.sum(), leaf))
        torch.testing.assert_close(found[1], found[0])

    def test_in_nested_inputs(self) -> None:
        graph = torch.fx.symbolic_trace(lambda pair: (pair[0].add_(1), pair[1] * 2))
        base = torch.zeros(3)
        compiled = aot_core_eager(graph, [[torch.ones(2), torch.ones(2)]])
        _, doubled = compiled([base[:2], base[1:]])
        torch.testing.assert_close((base, doubled), (torch.tensor([1.0, 1, 0]), torch.tensor([2.0, 0])))


class TestRefusals:
    def refused(self, function: Any, make: Make, words: str, *, train: bool = False) -> None:
        compiled = torch.compile(function, backend=aot_core_eager)
        base = torch.ones(8, requires_grad=train) * 1
        with pytest.raises(Exception, match=words) as caught:
            compiled(*make(base))
        cause = getattr(caught.value, "inner_exception", caught.value)
        assert isinstance(cause, aot_core.UnsupportedAliasingError)
        assert "errors/unsupported-aliasing" in str(cause)

    def test_different_dtypes_that_do_not_fill_the_memory(self) -> None:
        def make(base: torch.Tensor) -> Inputs:
            three = torch.zeros(3, dtype=torch.int16)
            return three, three[:2].view(torch.int32)

        self.refused(write_first, make, "different dtypes")

    def test_conjugates(self) -> None:
        pairs = torch.ones(4, dtype=torch.complex64)
        graph = torch.fx.symbolic_trace(lambda x, y: (x.mul_(2), y + 1))
        with pytest.raises(aot_core.UnsupportedAliasingError, match="conjugate"):
            aot_core_eager(graph, [pairs, pairs.conj()])

    def test_separate_leaves_over_one_memory(self) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x.mul_(2)
            return (x * y).sum()

        def make(base: torch.Tensor) -> Inputs:
            data = base.detach()
            return data[:4].requires_grad_(), data[2:6].requires_grad_()

        self.refused(f, make, "leaf that requires a gradient")

    def test_writes_to_an_expanded_input(self) -> None:
        self.refused(lambda x: x[0].add_(1), lambda b: (b[:4].expand(2, 4),), "overlap in memory")

    def test_writes_to_elements_of_an_expanded_input_that_do_not_overlap(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return x.diagonal().mul_(2)

        self.refused(f, lambda b: (b[:4].expand(2, 4),), "overlap in memory", train=True)

    def test_a_value_that_is_saved_and_then_overwritten(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            with torch.no_grad():
                x.mul_(2)
            return y

        self.refused(f, lambda b: (b[:4],), "modified by an inplace operation", train=True)

    def test_a_later_call_is_refused_too_and_the_next_one_works(self) -> None:
        compiled = torch.compile(write_first, backend=aot_core_eager, dynamic=False)
        compiled(torch.ones(3, dtype=torch.int16), torch.ones(1, dtype=torch.int32))
        three = torch.ones(3, dtype=torch.int16)
        with pytest.raises(aot_core.UnsupportedAliasingError, match="different dtypes"):
            compiled(three, three[:2].view(torch.int32))
        out = compiled(torch.ones(3, dtype=torch.int16), torch.ones(1, dtype=torch.int32))
        assert out.tolist() == [2]


class TestVariants:
    def test_old_ones_make_room(
        self, monkeypatch: pytest.MonkeyPatch, reports: list[aot_core.CompileReport]
    ) -> None:
        monkeypatch.setattr(dealias, "MAX_VARIANTS", 2)
        compiled = torch.compile(write_first, backend=aot_core_eager)
        for start in (0, 1, 2, 0, 1):
            base = torch.arange(6.0)
            out = compiled(base[:3], base[start : start + 3])
            want = torch.arange(6.0)
            want[:3] *= 2
            torch.testing.assert_close(out, want[start : start + 3] + 1)
        assert [d.action for r in reports for d in r.decisions].count("evict") == 3

    def test_the_same_addresses_in_larger_memory(self, reports: list[aot_core.CompileReport]) -> None:
        floats = torch.frombuffer(bytearray(32), dtype=torch.float32)
        halves = [
            torch.frombuffer(floats.numpy(), dtype=torch.float32, count=4, offset=16 * i) for i in (0, 1)
        ]
        compiled = torch.compile(write_first, backend=aot_core_eager)
        merged = []
        for x, y in (halves, halves, floats.split(4), halves):
            compiled(x, y)
            merged.append([d.code for r in reports for d in r.decisions].count("aliased-inputs"))
        assert merged == [0, 0, 1, 1]

    def test_floats_stay_symbolic(self, reports: list[aot_core.CompileReport]) -> None:
        compiled = torch.compile(lambda x, s: x * s, backend=aot_core_eager, dynamic=True)
        for s in (0.5, 1.5, 2.5):
            assert compiled(torch.ones(2), s).tolist() == [s, s]
        assert len(reports) == 1

    def test_a_graph_that_writes_no_input_is_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled = torch.compile(lambda x, y: (x * y).view(-1)[1:], backend=aot_core_eager)
        base = torch.arange(6.0)
        compiled(base[:3], base[1:4])
        monkeypatch.setattr(dealias, "read_signature", None)
        torch.testing.assert_close(compiled(base[:3], base[1:4]), torch.tensor([2.0, 6.0]))

    def test_the_backward_of_a_variant_obeys_autocast(self) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return torch.linalg.inv(y).sum()

        found = []
        for function in (f, torch.compile(f, backend=aot_core_eager)):
            leaf = (torch.eye(4) + torch.arange(16.0).reshape(4, 4) / 100).requires_grad_()
            base = leaf * 1
            out = function(base[:2], base)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found.append(torch.autograd.grad(out, leaf))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


class TestEffects:
    @pytest.mark.parametrize(
        ("function", "written"),
        [
            (lambda x, y: (x + y,), []),
            (lambda x, y: (x.add_(y),), [0]),
            (lambda x, y: (x.view(-1).mul_(2), y.detach().add_(1)), [0, 1]),
            (lambda x, y: (torch.add(x, 1, out=y),), [1]),
            (lambda x, y: (torch._foreach_add_([y], [x]),), [1]),
            (lambda x, y: (x.t_(),), [0]),
        ],
    )
    def test_what_changes(self, function: Any, written: list[int]) -> None:
        graph = torch.fx.symbolic_trace(function)
        effects = find_effects(graph, [torch.ones(2, 2), torch.ones(2, 2)])
        assert effects.unknown is None
        assert effects.changed == written

    def test_reshaping_in_place_writes_nothing(self) -> None:
        x = torch.ones(1, 3).expand(2, 3)
        out = torch.compile(lambda x: x.t_() * 2, backend=aot_core_eager)(x)
        assert out.shape == x.shape == (3, 2)
        assert out.tolist() == [[2.0, 2.0]] * 3

    def test_running_statistics(self) -> None:
        def f(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
            return torch.nn.functional.batch_norm(x, mean, var, training=True), mean

        effects = find_effects(torch.fx.symbolic_trace(f), [torch.ones(4, 3), torch.zeros(3), torch.ones(3)])
        assert effects.changed == [1, 2]
        assert effects.returned == {1: 1}

    def test_the_inputs_are_only_looked_at(self) -> None:
        x = torch.ones(2)
        find_effects(torch.fx.symbolic_trace(lambda x: (x.mul_(2),)), [x])
        assert x.tolist() == [1, 1]
        assert x._version == 0

    def test_a_graph_that_fails_on_fakes_is_unknown(self) -> None:
        effects = find_effects(torch.fx.symbolic_trace(lambda x: (x.numpy(),)), [torch.ones(2)])
        assert effects.unknown is not None
        assert effects.changed == [0]
