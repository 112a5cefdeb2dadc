"""Backends that are wrong on purpose, each in one way that a compiler might be.

A backend gets the graph that Dynamo captured and returns what runs instead. These run it with eager kernels,
and spoil one thing. Where one keeps state over calls or graphs, its factory gives each test a fresh one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

Run = Callable[..., Any]
Mutant = Callable[[fx.GraphModule, Sequence[Any]], Run]


def on_inputs(change: Callable[[torch.Tensor], Any]) -> Mutant:
    """Run the graph on changed tensors."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        return lambda *args: gm(*(change(a) if isinstance(a, torch.Tensor) else a for a in args))

    return backend


def on_outputs(change: Callable[[torch.Tensor], Any]) -> Mutant:
    """Change the tensors that the graph returns."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        return lambda *args: tuple(change(o) if isinstance(o, torch.Tensor) else o for o in gm(*args))

    return backend


def around_calls(context: Callable[[], contextlib.AbstractContextManager[Any]]) -> Mutant:
    """Run the graph inside a context."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            with context():
                return gm(*args)

        return run

    return backend


def on_nodes(change: Callable[[fx.Node], None]) -> Mutant:
    """Edit the graph, node by node."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        for node in list(gm.graph.nodes):
            change(node)
        gm.recompile()
        return gm.forward

    return backend


# --- values and dtypes -------------------------------------------------------------------------------------


def _off(value: torch.Tensor) -> torch.Tensor:
    return value * 1.001 if value.is_floating_point() else value


wrong_values = on_outputs(_off)
no_special_values = on_outputs(lambda t: t.nan_to_num() if t.is_floating_point() else t)
bool_as_uint8 = on_outputs(lambda t: t.to(torch.uint8) if t.dtype is torch.bool else t)
everything_in_float32 = on_outputs(lambda t: t.to(torch.float32))


def computes_in(low: torch.dtype, instead_of: torch.dtype) -> Mutant:
    """Round what the graph returns to another dtype's precision."""
    return on_outputs(lambda t: t.to(low).to(t.dtype) if t.dtype is instead_of else t)


def saturating_integers(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    def run(x: torch.Tensor) -> Any:
        limits = torch.iinfo(x.dtype)
        return tuple(out.clamp(limits.min, limits.max).to(x.dtype) for out in gm(x.to(torch.int64)))

    return run


def integers_through_float(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    def through(t: torch.Tensor) -> torch.Tensor:
        return t if t.is_floating_point() or t.numel() < 5 else t.to(torch.float32).to(t.dtype)

    return lambda *args: tuple(through(out) for out in gm(*args))


# --- gradients ---------------------------------------------------------------------------------------------


class _ByHand(torch.autograd.Function):
    """Runs a graph inside a node of its own; ``backward(outputs, inputs, grads)`` gives the gradients."""

    @staticmethod
    def forward(ctx: Any, run: Run, backward: Callable[..., Any], *inputs: Any) -> Any:
        with torch.enable_grad():
            inner = [x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in inputs]
            outputs = run(*inner)
        ctx.inner, ctx.outputs, ctx.backward_by_hand, ctx.originals = inner, outputs, backward, inputs
        ctx.set_materialize_grads(False)
        returned = tuple(o.detach() if torch.is_tensor(o) else o for o in outputs)
        ctx.mark_non_differentiable(
            *(r for r, o in zip(returned, outputs, strict=True) if torch.is_tensor(o) and not o.requires_grad)
        )
        return returned

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        wanted = [i for i, x in enumerate(ctx.inner) if torch.is_tensor(x) and x.requires_grad]
        pairs = [(o, g) for o, g in zip(ctx.outputs, grads, strict=True) if g is not None]
        found = ctx.backward_by_hand(
            [o for o, _ in pairs],
            [ctx.inner[i] for i in wanted],
            [g for _, g in pairs],
            [ctx.originals[i] for i in wanted],
        )
        result: list[Any] = [None] * len(ctx.inner)
        for index, gradient in zip(wanted, found, strict=True):
            result[index] = gradient
        return (None, None, *result)


def _derive(outputs: Any, inputs: Any, grads: Any, originals: Any = (), retain: bool = True) -> Any:
    with torch.enable_grad():
        return torch.autograd.grad(outputs, inputs, grads, allow_unused=True, retain_graph=retain)


def by_hand(backward: Callable[..., Any]) -> Mutant:
    """Let ``backward`` say what the gradients are."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        return lambda *args: _ByHand.apply(gm, backward, *args)

    return backend


def on_gradients(change: Callable[[torch.Tensor], Any]) -> Mutant:
    """Change every gradient of the graph's inputs."""
    return by_hand(lambda *args: [g if g is None else change(g) for g in _derive(*args)])


wrong_gradients = on_gradients(lambda g: g * 1.001)
dense_gradients = on_gradients(lambda g: g.to_dense())
conjugate_gradients = on_gradients(lambda g: g.conj())
frees_at_once = by_hand(functools.partial(_derive, retain=False))
no_second_derivative = by_hand(_derive)
detaches = on_outputs(lambda t: t.detach())
needs_gradient_everywhere = on_outputs(lambda t: t.requires_grad_() if t.is_floating_point() else t)


def _missing_as(value: float) -> Mutant:
    def backward(outputs: Any, inputs: Any, grads: Any, originals: Any) -> Any:
        found = _derive(outputs, inputs, grads)
        return [torch.full_like(x, value) if g is None else g for x, g in zip(inputs, found, strict=True)]

    return by_hand(backward)


zero_for_no_gradient = _missing_as(0.0)
one_for_no_gradient = _missing_as(1.0)


def _flat_curvature(outputs: Any, inputs: Any, grads: Any, originals: Any) -> Any:
    return [g + 0 * x for g, x in zip(_derive(outputs, inputs, grads), originals, strict=True)]


second_derivative_is_zero = by_hand(_flat_curvature)


def _write_grad(outputs: Any, inputs: Any, grads: Any, originals: Any, add: bool) -> Any:
    for x, gradient in zip(originals, _derive(outputs, inputs, grads), strict=True):
        if x.is_leaf and gradient is not None:
            x.grad = gradient if x.grad is None or not add else x.grad + gradient
    return [None] * len(inputs)


writes_grad_itself = by_hand(functools.partial(_write_grad, add=True))
overwrites_grad = by_hand(functools.partial(_write_grad, add=False))


def keeps_last_activations() -> Mutant:
    """The backward uses what the last forward saved, whichever forward it belongs to."""
    last: list[Any] = [None]

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def backward(outputs: Any, inputs: Any, grads: Any, originals: Any) -> Any:
            return _derive(*last[0], grads)

        def forward(*args: Any) -> Any:
            outputs = gm(*args)
            needed = [a for a in args if torch.is_tensor(a) and a.requires_grad]
            last[0] = ([o for o in outputs if o.requires_grad], needed)
            return outputs

        return lambda *args: _ByHand.apply(forward, backward, *args)

    return backend


def reuses_gradient_memory() -> Mutant:
    memory: list[torch.Tensor] = []

    def backward(*args: Any) -> Any:
        found = _derive(*args)
        if not memory:
            memory.extend(found)
        return [old.copy_(new) for old, new in zip(memory, found, strict=True)]

    return by_hand(backward)


def recomputes_with_other_numbers(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    """Recomputes the forward in the backward, with random numbers of its own."""

    def backward(outputs: Any, inputs: Any, grads: Any, originals: Any) -> Any:
        with torch.enable_grad():
            return _derive([o for o in gm(*inputs) if o.requires_grad], inputs, grads)

    return lambda *args: _ByHand.apply(gm, backward, *args)


# --- memory: mutations, aliases, layout --------------------------------------------------------------------

drops_mutations = on_inputs(torch.clone)
clones_outputs = on_outputs(torch.clone)
contiguous_outputs = on_outputs(lambda t: torch.empty(t.shape, dtype=t.dtype).copy_(t))
at_least_one_dimension = on_outputs(torch.atleast_1d)
forbids_writes_to_outputs = on_outputs(lambda t: torch.stack([t]).unbind(0)[0])
not_inference = on_outputs(lambda t: _ordinary_clone(t))


def _ordinary_clone(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False), torch.no_grad():
        return value.clone()


def _written_back(data: bool) -> Mutant:
    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            clones = [a.clone() if torch.is_tensor(a) else a for a in args]
            outputs = gm(*clones)
            with torch.no_grad():
                for before, after in zip(args, clones, strict=True):
                    if torch.is_tensor(before) and not torch.equal(before, after):
                        (before.data if data else before).copy_(after)
            return outputs

        return run

    return backend


writes_inputs_back = _written_back(data=False)
writes_behind_autograd = _written_back(data=True)


def _in_memory_order(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset())


reads_in_memory_order = on_inputs(_in_memory_order)
ignores_storage_offset = on_inputs(lambda x: x.as_strided(x.shape, x.stride(), 0))


def refuses_empty(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    def run(*args: Any) -> Any:
        if any(torch.is_tensor(a) and a.numel() == 0 for a in args):
            raise RuntimeError("invalid configuration: a grid of 0 blocks")
        return gm(*args)

    return run


def reuses_output_memory(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    memory: list[torch.Tensor] = []

    def run(*args: Any) -> Any:
        outputs = gm(*args)
        if not memory:
            memory.extend(outputs)
        return tuple(old.copy_(new) for old, new in zip(memory, outputs, strict=True))

    return run


# --- edits of the graph ------------------------------------------------------------------------------------


def _skip_noop(node: fx.Node) -> None:
    noop = node.target in (operator.add, operator.mul) and node.args[1] in (0, 1)
    if noop or node.target == "clone":
        node.replace_all_uses_with(node.args[0])


def _skip_grad_mode(node: fx.Node) -> None:
    if "set_grad_enabled" in str(node.target):
        node.graph.erase_node(node)


def removes_autocast_regions(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    for node in reversed(list(gm.graph.nodes)):
        if "_autocast" in str(node.target):
            gm.graph.erase_node(node)
    gm.recompile()
    return gm.forward


def _first_branch(node: fx.Node) -> None:
    if str(node.target) == "cond":
        node.update_arg(0, True)


def _loop_once(node: fx.Node) -> None:
    if str(node.target) == "while_loop":
        _, body, carried, extra = node.args
        with node.graph.inserting_before(node):
            once = node.graph.call_function(lambda body, *args: body(*args), (body, *carried, *extra))
        node.replace_all_uses_with(once)
        node.graph.erase_node(node)


removes_noops = on_nodes(_skip_noop)
removes_no_grad = on_nodes(_skip_grad_mode)
takes_first_branch = on_nodes(_first_branch)
loops_once = on_nodes(_loop_once)


def folds_constants(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    """What no input goes into is computed once and returned in every call."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and not node.all_input_nodes:
            value = node.target(*node.args, **node.kwargs)
            node.target, node.args, node.kwargs = (lambda value=value: value), (), {}
    return functools.partial(fx.Interpreter(gm).run)


# --- order of inputs and outputs ---------------------------------------------------------------------------


def reverses_inputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    return lambda *args: gm(*reversed(args))


def reverses_outputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    return lambda *args: tuple(reversed(gm(*args)))


# --- what is kept too long ---------------------------------------------------------------------------------


def first_graph_for_all() -> Mutant:
    """Compiles the first graph it sees, and takes it for every other one with as many inputs."""
    cache: dict[int, Run] = {}
    return lambda gm, example_inputs: cache.setdefault(len(example_inputs), gm.forward)


def _of_first_call(kind: Any) -> Callable[[], Mutant]:
    def factory() -> Mutant:
        def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
            first: list[Any] = []

            def run(*args: Any) -> Any:
                if not first:
                    first.extend(a.clone() if torch.is_tensor(a) else a for a in args)
                return gm(*(f if isinstance(a, kind) else a for f, a in zip(first, args, strict=True)))

            return run

        return backend

    return factory


freezes_tensors = _of_first_call(torch.Tensor)
freezes_numbers = _of_first_call((int, float))


def freezes_parameters() -> Mutant:
    """Parameters are those of the first call of any graph."""
    first: dict[int, torch.Tensor] = {}

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            frozen = list(args)
            for index, value in enumerate(args):
                if isinstance(value, torch.nn.Parameter):
                    frozen[index] = first.setdefault(index, value.detach().clone().requires_grad_())
            return gm(*frozen)

        return run

    return backend


def truncates_to_first_size(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    """Never returns more rows than in its first call."""
    rows: dict[int, int] = {}

    def run(*args: Any) -> Any:
        outputs = gm(*args)
        return tuple(out[: rows.setdefault(i, out.shape[0])] for i, out in enumerate(outputs))

    return run


def keeps_inputs() -> Mutant:
    kept: list[Any] = []

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            kept.append(args)
            return gm(*args)

        return run

    return backend


def keeps_outputs() -> Mutant:
    kept: list[Any] = []

    def keep(out: torch.Tensor) -> torch.Tensor:
        kept.append(out)
        return out

    return on_outputs(keep)


# --- random numbers ----------------------------------------------------------------------------------------


def ignores_seed() -> Mutant:
    """Numbers come from a generator of its own."""
    generator = itertools.count()

    @contextlib.contextmanager
    def own_numbers() -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(next(generator))
            yield

    return around_calls(own_numbers)


def draws_before_running(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    def run(*args: Any) -> Any:
        torch.rand(1)
        return gm(*args)

    return run


def reuses_random_numbers(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    state = torch.get_rng_state()

    def run(*args: Any) -> Any:
        torch.set_rng_state(state)
        return gm(*args)

    return run


leaves_generator_behind = around_calls(lambda: torch.random.fork_rng(devices=[]))


# --- modes, errors, threads --------------------------------------------------------------------------------

without_autocast = around_calls(lambda: torch.autocast("cpu", enabled=False))


def _backward_under_autocast(enabled: Callable[[], bool]) -> Mutant:
    """The backward runs under an autocast state that is settled in the forward."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            settled = enabled()

            def backward(*arguments: Any) -> Any:
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settled):
                    return _derive(*arguments)

            return _ByHand.apply(gm, backward, *args)

        return run

    return backend


backward_under_forward_autocast = _backward_under_autocast(lambda: torch.is_autocast_enabled("cpu"))
backward_without_autocast = _backward_under_autocast(lambda: False)


def swallows_errors(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    expected = gm(*example_inputs)

    def run(*args: Any) -> Any:
        try:
            return gm(*args)
        except Exception:
            return expected

    return run


def breaks_after_error() -> Mutant:
    """A gradient that never arrived leaves it unable to go on."""
    waiting: list[int] = []

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def backward(*args: Any) -> Any:
            waiting.pop()
            return _derive(*args)

        def run(*args: Any) -> Any:
            if waiting:
                raise RuntimeError("still waiting for the backward of the last call")
            waiting.append(1)
            return _ByHand.apply(gm, backward, *args)

        return run

    return backend


def changes_global_state(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
    def run(*args: Any) -> Any:
        torch.use_deterministic_algorithms(True)
        return gm(*args)

    return run


def mixes_up_threads() -> Mutant:
    """Leaves its arguments in one place for all threads and graphs, and takes them from there a bit later."""
    place: list[Any] = [None]

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        def run(*args: Any) -> Any:
            place[0] = args
            time.sleep(0.02)
            return gm(*place[0])

        return run

    return backend


class HoldsALock:
    """Right in all it computes, and can't be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        return gm.forward
