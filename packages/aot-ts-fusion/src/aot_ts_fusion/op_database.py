"""Torch's database of operators, traced, compiled and compared with eager.

Every sample of an operator goes through the same steps::

    run it eagerly                                    outputs, gradients, and what it did to its inputs
    trace it to ATen, with its backward if asked      with real tensors, or with symbolic shapes
    compile the graph, run it twice on the inputs     must give eager's bits, and share memory as eager does

`error_entries` and `run_error` do the same with inputs on which an operator must raise: what eager calls until it
raises is recorded as a graph, and that graph must raise the same type of exception.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aot_core.testing.operators import op_database, operators_not_seeded
from aot_ts_fusion import _compat
from aot_ts_fusion._compat import pytree

__all__ = [
    "DTYPES",
    "RIGHT",
    "Compiler",
    "Entry",
    "ErrorOutcome",
    "Outcome",
    "TracedSample",
    "entries",
    "error_entries",
    "first_samples",
    "run_error",
    "run_sample",
    "trace_sample",
    "unfactorable",
]

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]
"""Compiles a graph to a boxed callable."""

Status = Literal["exact", "close", "as-traced", "wrong", "not-compiled", "raised"]

RIGHT = ("exact", "close", "as-traced")
"""What a compiler that has done its work gives."""

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool)
"""The dtypes that are looked at."""

# What these return, or part of it, is undefined.
_UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """An operator of the database for one dtype.

    Args:
        info: The database's record.
        dtype: Dtype of the samples.
        gradient: Whether its backward belongs to it.
    """

    info: Any
    dtype: torch.dtype
    gradient: bool

    @property
    def name(self) -> str:
        """Name of the operator, its variant, and what is asked of it."""
        form = "gradient" if self.gradient else "forward"
        return f"{self.info.formatted_name} {str(self.dtype).removeprefix('torch.')} {form}"

    def samples(self, device: str = "cpu") -> Iterator[Any]:
        """Yield the sample inputs of the database."""
        torch.manual_seed(0)
        samples = iter(self.info.sample_inputs(device, self.dtype, requires_grad=self.gradient))
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sample = next(samples, None)
            if sample is None:
                return
            yield sample


def entries(dtypes: Sequence[torch.dtype] = DTYPES, *, gradient: bool, device: str = "cpu") -> list[Entry]:
    """Return the entries of the database, forwards alone or forwards with their backwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = op_database()
    found = []
    for info in database:
        for dtype in dtypes:
            if gradient:
                possible = info.supports_autograd and dtype in info.supported_backward_dtypes(device)
            else:
                possible = dtype in info.supported_dtypes(device)
            if possible:
                found.append(Entry(info, dtype, gradient))
    return found


@dataclasses.dataclass(frozen=True)
class TracedSample:
    """A sample as a graph.

    Attributes:
        gm: The graph.
        inputs: Its inputs.
        expected: What eager gives for them: outputs, then the inputs as they are afterwards.
        looks: Dtype, size and strides of each output, as the graph itself gives them: a derivative traced is not always
            the formula that eager takes, and the same values may lie in another order.
        aliases: For each output, the inputs and outputs whose memory it shares in eager.
        compared: Whether values count, or sizes and dtypes only.
        by_graph: What the graph gives in FX, in the order of ``expected``.
        aliases_by_graph: As ``aliases``, of what the graph gives in FX.
    """

    gm: fx.GraphModule
    inputs: tuple[Any, ...]
    expected: list[Any]
    looks: list[Any]
    aliases: list[set[int]]
    compared: bool
    by_graph: list[Any]
    aliases_by_graph: list[set[int]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one sample with one compiler.

    Args:
        status: ``"exact"``: eager's bits, in both calls. ``"close"``: within `torch.testing.assert_close`.
            ``"as-traced"``: not so, but bit for bit what the graph gives in FX; torch's decomposition rounds otherwise
            than its kernel does, or makes a copy where that does not. ``"wrong"``: other values, dtypes, sizes or
            strides, other inputs afterwards, or other memory shared. ``"not-compiled"`` and ``"raised"``: an exception
            when it was compiled, or when it was run.
        detail: The exception, or what differs.
        native: Operations in TorchScript, if the compiler tells.
        operations: Operations of the graph.
        cut_out: What runs in FX: code and operator.
    """

    status: Status
    detail: str = ""
    native: int = 0
    operations: int = 0
    cut_out: tuple[str, ...] = ()


def trace_sample(entry: Entry, sample: Any, *, dynamic: bool) -> TracedSample | None:
    """Trace a sample; None where eager itself, or the trace, fails.

    Args:
        entry: The operator.
        sample: One of its samples.
        dynamic: Trace with symbolic shapes, rather than with these.
    """
    with warnings.catch_warnings(), operators_not_seeded():
        warnings.simplefilter("ignore")
        try:
            return _trace(entry, sample, dynamic)
        except Exception:
            return None


def run_sample(compile_graph: Compiler, traced: TracedSample) -> Outcome:
    """Compile a traced sample, run it twice, and compare."""
    gm = fx.GraphModule(traced.gm, copy.deepcopy(traced.gm.graph))
    operations = sum(node.op == "call_function" for node in gm.graph.nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = compile_graph(gm, _copied(traced.inputs))
        except Exception as error:
            return Outcome("not-compiled", _brief(error), operations=operations)
        told = {
            "native": getattr(compiled, "native", 0),
            "operations": operations,
            "cut_out": tuple(
                f"{each.code}: {each.detail.split(' ')[0]}" for each in getattr(compiled, "decisions", ())
            ),
        }
        status: Status = "exact"
        for _ in range(2):
            inputs = _copied(traced.inputs)
            torch.manual_seed(0)
            try:
                got = _leaves(compiled(list(inputs)))
            except Exception as error:
                return Outcome("raised", _brief(error), **told)
            if len(got) != len(traced.expected) - len(inputs):
                return Outcome("wrong", f"{len(got)} outputs", **told)
            sharing = _sharing(got, inputs)
            if sharing not in (traced.aliases, traced.aliases_by_graph):
                return Outcome("wrong", "other memory is shared", **told)
            if sharing != traced.aliases:
                status = "as-traced"
            if [_looks(each) for each in got] != traced.looks:
                return Outcome("wrong", "other sizes, strides or dtypes", **told)
            if traced.compared:
                verdict: Status = _compare([*got, *inputs], traced.expected)
                if verdict == "wrong" and _compare([*got, *inputs], traced.by_graph) == "exact":
                    verdict = "as-traced"
                if verdict == "wrong":
                    return Outcome("wrong", "other values", **told)
                status = max(status, verdict, key=RIGHT.index)
            _overwrite(got)
        return Outcome(status, **told)


def _trace(entry: Entry, sample: Any, dynamic: bool) -> TracedSample | None:
    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    wanted = [leaves[place].requires_grad for place in places]

    def run(*tensors: torch.Tensor) -> list[Any]:
        given = list(leaves)
        for place, tensor, grad in zip(places, tensors, wanted, strict=True):
            given[place] = tensor.detach().requires_grad_() if entry.gradient and grad else tensor
        called, args, kwargs = pytree.tree_unflatten(given, structure)
        with torch.set_grad_enabled(entry.gradient):
            result = entry.info(called, *args, **kwargs)
        if not entry.gradient:
            return _leaves(result)
        outputs = [each for each in _leaves(sample.output_process_fn_grad(result)) if _differentiable(each)]
        sources = [given[place] for place, grad in zip(places, wanted, strict=True) if grad]
        if not outputs or not sources:
            return [each.detach() for each in _leaves(result) if isinstance(each, torch.Tensor)]
        tangents = [torch.full_like(each, 0.5) for each in outputs]
        gradients = torch.autograd.grad(outputs, sources, tangents, allow_unused=True)
        return [*(each.detach() for each in outputs), *gradients]

    inputs = tuple(leaves[place].detach() for place in places)
    if any(not _is_plain(each) for each in inputs):
        return None
    seen = _copied(inputs)
    torch.manual_seed(0)
    outputs = run(*seen)
    if any(isinstance(each, torch.Tensor) and not _is_plain(each) for each in outputs):
        return None
    torch.manual_seed(0)
    gm = make_fx(run, tracing_mode="symbolic" if dynamic else "real")(*_copied(inputs))
    given = _copied(inputs)
    torch.manual_seed(0)
    by_graph = _leaves(gm(*given))
    return TracedSample(
        gm,
        inputs,
        [_kept(each) for each in (*outputs, *seen)],
        [_looks(each) for each in by_graph],
        _sharing(outputs, seen),
        entry.info.name not in _UNDEFINED,
        [_kept(each) for each in (*by_graph, *given)],
        _sharing(by_graph, given),
    )


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = pytree.tree_leaves(value, is_leaf=lambda each: each is None)
    return found


def _copied(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return copies that lie in memory as the originals do."""
    return tuple(_copy(each) for each in inputs)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)).clone()
    copied = torch.empty(0, dtype=tensor.dtype)
    return copied.set_(whole.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _sharing(outputs: Sequence[Any], inputs: Sequence[torch.Tensor]) -> list[set[int]]:
    """Return for each output the places, among inputs and outputs, that share its memory."""
    addresses = [_address(each) for each in (*inputs, *outputs)]
    return [
        {place for place, address in enumerate(addresses) if address == own and own is not None}
        for own in addresses[len(inputs) :]
    ]


def _address(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor) or not value.numel():
        return None
    return value.untyped_storage().data_ptr() or None


def _looks(value: Any) -> Any:
    """Return what of a value must be the same: the strides that reach anything, too."""
    if not isinstance(value, torch.Tensor):
        return value
    strides = [stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1]
    return value.dtype, tuple(value.shape), strides if value.numel() else None


def _compare(got: Sequence[Any], expected: Sequence[Any]) -> Literal["exact", "close", "wrong"]:
    exact = True
    for one, other in zip(got, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            same = one == other or (one != one and other != other)
            if type(one) is not type(other) or not same:
                return "wrong"
            continue
        if not isinstance(one, torch.Tensor) or (one.dtype, one.shape) != (other.dtype, other.shape):
            return "wrong"
        if not torch.equal(_bits(one), _bits(other)):
            exact = False
            try:
                torch.testing.assert_close(one, other, equal_nan=True)
            except AssertionError:
                return "wrong"
    return "exact" if exact else "close"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.resolve_conj().resolve_neg().flatten()
    if flat.is_floating_point() or flat.is_complex():
        flat = torch.where(flat.isnan(), torch.full_like(flat, float("nan")), flat)
    return flat.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _overwrite(outputs: Sequence[Any]) -> None:
    """Write to what was returned: nothing of it may be there in the next call."""
    for each in outputs:
        if isinstance(each, torch.Tensor) and each.numel():
            address = torch.empty(0, dtype=torch.uint8)
            storage = each.untyped_storage()
            address.set_(storage, 0, (storage.nbytes(),), (1,)).fill_(1)


def _brief(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:160] if lines else ''}"


# --- inputs on which an operator must raise ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ErrorOutcome:
    """What eager raised, and what the compiled graph of the same calls did.

    Args:
        name: The operator.
        eager: Type of eager's exception.
        compiled: Type of the graph's; None if it raised nothing.
    """

    name: str
    eager: type[BaseException]
    compiled: type[BaseException] | None

    @property
    def same(self) -> bool:
        """Tell whether both raised the same type."""
        return self.eager is self.compiled


def error_entries(
    device: str = "cpu", *, every: int = 1, seed: int = 0
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a name and a function that raises for each error input of the database.

    Args:
        device: Where the inputs are.
        every: Take one operator in so many.
        seed: Which ones.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = [info for info in op_database() if info.error_inputs_func is not None]
        for info in random.Random(seed).sample(database, len(database) // every):
            for number, each in enumerate(info.error_inputs(device)):
                yield f"{info.formatted_name} {number}", _call(info, each.sample_input)


def unfactorable() -> dict[str, Callable[[], Any]]:
    """Return calls of linear algebra on matrices that are singular, indefinite or not finite, by name."""
    singular, indefinite = torch.zeros(3, 3), -torch.eye(3)
    infinite = torch.full((3, 3), float("inf"))
    return {
        "linalg.cholesky": lambda: torch.linalg.cholesky(indefinite),
        "cholesky": lambda: torch.cholesky(indefinite),
        "cholesky_inverse": lambda: torch.cholesky_inverse(singular),
        "linalg.inv": lambda: torch.linalg.inv(singular),
        "linalg.solve": lambda: torch.linalg.solve(singular, torch.ones(3)),
        "linalg.solve_ex": lambda: torch.linalg.solve_ex(singular, torch.ones(3), check_errors=True),
        "linalg.lu_factor": lambda: torch.linalg.lu_factor(singular),
        "linalg.ldl_factor": lambda: torch.linalg.ldl_factor(singular),
        "linalg.inv_ex": lambda: torch.linalg.inv_ex(singular, check_errors=True),
        "linalg.tensorinv": lambda: torch.linalg.tensorinv(singular, ind=1),
        "linalg.tensorsolve": lambda: torch.linalg.tensorsolve(singular, torch.ones(3)),
        "linalg.matrix_power": lambda: torch.linalg.matrix_power(singular, -1),
        "linalg.eig": lambda: torch.linalg.eig(infinite),
        "linalg.eigvals": lambda: torch.linalg.eigvals(infinite),
        "linalg.eigh": lambda: torch.linalg.eigh(infinite),
        "linalg.svd": lambda: torch.linalg.svd(infinite),
        "linalg.cond": lambda: torch.linalg.cond(infinite, 2),
        "inverse": lambda: torch.inverse(singular),
    }


def run_error(
    compile_graph: Compiler, name: str, call: Callable[[], Any]
) -> ErrorOutcome | Literal["no-error", "not-recorded"]:
    """Record what a failing call does, run the compiled graph of it, and compare what is raised.

    Returns:
        The outcome, ``"no-error"`` if eager raises nothing, ``"not-recorded"`` if it raises before any operator.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = _compat.Recorder()
        try:
            with torch.no_grad(), recorder:
                call()
        except Exception as error:
            raised = type(error)
        else:
            return "no-error"
        last = recorder.last
        if last is None or any(not _is_plain(each) for each in recorder.inputs):
            return "not-recorded"
        recorder.graph.output((last,) if _compat.signature(last.target).returns else ())
        gm = fx.GraphModule({}, recorder.graph)
        try:
            gm(*recorder.inputs)
        except Exception as error:
            if type(error) is not raised:
                return "not-recorded"
        else:
            return "not-recorded"
        try:
            compile_graph(gm, recorder.inputs)(list(recorder.inputs))
        except Exception as error:
            return ErrorOutcome(name, raised, type(error))
        return ErrorOutcome(name, raised, None)


def _call(info: Any, sample: Any) -> Callable[[], Any]:
    return lambda: info(sample.input, *sample.args, **sample.kwargs)


def first_samples(entry: Entry, count: int | None) -> Iterator[Any]:
    """Yield the first samples of an entry, or all."""
    return itertools.islice(entry.samples(), count)
