"""Torch's op database through the claims, the translation and the region runtime of the executor ``nvfuser``.

A sample is one call of an operator. It is traced as AOTAutograd would trace it, claimed, made one region if every node
is claimed, and run by engines that need no GPU; the results are compared with eager PyTorch's.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from aot_partition.nvfuser.claims import ClaimRules
from aot_partition.nvfuser.executor import NvFuserExecutor
from aot_partition.nvfuser.rules import rules
from aot_partition.nvprims import claim
from aot_partition.nvprims.decompositions import nvprims_decompositions

with warnings.catch_warnings():
    # It misses hypothesis, of which nothing is needed here.
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
)
CLAIMS = ClaimRules(devices=("cpu",), toolkit=True)

# What they give is anything, or drawn at random: compared in shape, dtype and strides alone.
ANY_VALUE = frozenset(
    {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_permuted", "empty_strided"}
)

# Where equal elements come in any order.
TIED = frozenset({"sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "msort"})


@dataclasses.dataclass(frozen=True)
class Entry:
    """An operator of the database."""

    info: Any

    @property
    def name(self) -> str:
        variant = self.info.variant_test_name
        return f"{self.info.name}.{variant}" if variant else str(self.info.name)


@dataclasses.dataclass
class Outcome:
    """What became of a sample.

    Args:
        status: ``"fusion"``, ``"shape-only"``, ``"zero-size"``, ``"refused"``, ``"untraced"`` or ``"eager"`` (which
            eager PyTorch itself refuses).
        reasons: Why nodes were refused, or the message.
        operations: What nvFuser was told.
        faults: Per engine, what was wrong.
    """

    status: str
    reasons: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    faults: dict[str, str] = dataclasses.field(default_factory=dict)
    random: bool = False


def entries() -> list[Entry]:
    return [Entry(info) for info in op_db]


def samples_of(entry: Entry, dtype: torch.dtype) -> Iterator[Any]:
    """Yield an entry's samples of a dtype on the CPU, none if it has none."""
    if dtype not in entry.info.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from entry.info.sample_inputs("cpu", dtype, requires_grad=False)


class Call:
    """A sample as a function of its tensors."""

    def __init__(self, entry: Entry, sample: Any) -> None:
        self._op = entry.info.op
        self._leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.tensors = [each for each in self._leaves if isinstance(each, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(each, torch.Tensor) else each for each in self._leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._op(first, *args, **kwargs)


def trace(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> fx.GraphModule:
    """Trace a function as AOTAutograd does: functional, with the decompositions of nvprims."""
    table = nvprims_decompositions()
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(each) for each in tensors]
        functional = dispatch_functionalize(lambda *given: function(*given), FunctionalTensorMode())
        gm = make_fx(functional, decomposition_table=table, tracing_mode="real")(*fakes)
    gm.graph.eliminate_dead_code()
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            node.meta["val"] = getattr(gm, node.target)
    return gm


def run_sample(
    entry: Entry,
    sample: Any,
    executors: dict[str, NvFuserExecutor],
    *,
    compare: bool = True,
    device: str = "cpu",
    seen: set[str] | None = None,
) -> Outcome:
    """Trace, claim and run one sample.

    Args:
        executors: By the name under which their faults are noted.
        compare: False where values mean nothing, as under the fake CUDA.
        device: Where the sample is run; eager PyTorch runs it on the CPU.
        seen: Definitions that need not be run again; those that are run are added.
    """
    call = Call(entry, sample)
    if any(each.numel() == 0 for each in call.tensors):
        return Outcome("zero-size")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = call(*(each.clone() for each in call.tensors))
    except Exception as error:
        return Outcome("eager", (str(error)[:100],))
    try:
        call.tensors = [each.to(device) for each in call.tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gm = trace(call, call.tensors)
    except Exception as error:
        return Outcome("untraced", (f"{type(error).__name__}: {str(error)[:80]}",))
    return check_graph(gm, call, expected, executors, compare=compare, name=entry.info.name, seen=seen)


def check_graph(
    gm: fx.GraphModule,
    call: Call,
    expected: Any,
    executors: dict[str, NvFuserExecutor],
    *,
    compare: bool,
    name: str,
    seen: set[str] | None,
) -> Outcome:
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    kinds = {kind_of(node) for node in calls}
    claims = claim(gm, refuse=next(iter(executors.values())).refuse)
    if any(is_empty(node.meta.get("val")) for node in gm.graph.nodes):
        return Outcome("zero-size")
    if claims.refused:
        found = dict.fromkeys(f"{node.target}: {reason}" for node, reason in claims.refused.items())
        return Outcome("refused", tuple(found))
    returned: Any = gm.graph.output_node().args[0]
    if kinds <= {"shape", "tuple"} or not calls:
        return Outcome("shape-only")
    gm.graph.output_node().args = (pytree.tree_leaves(returned),)
    gm.recompile()
    outcome = Outcome("fusion", random="random" in kinds or name in ANY_VALUE)
    # Elsewhere than on the CPU an operator may have results of other sizes: what was traced says so.
    wanted = pytree.tree_leaves(expected if compare else traced(returned))
    for engine, executor in executors.items():
        try:
            region = executor.compile_region(gm, [])
            if region.translation is not None:
                outcome.operations = tuple(region.translation.definition.operations)
                if seen is not None:
                    if region.translation.definition.source in seen:
                        continue
                    seen.add(region.translation.definition.source)
            got = region([*placeholders(gm, call.tensors)])
        except Exception as error:
            outcome.faults[engine] = f"{type(error).__name__}: {str(error)[:6000]}"
            continue
        fault = difference(got, wanted, values=compare and not outcome.random, call=call, name=name)
        if fault:
            outcome.faults[engine] = fault
    return outcome


def traced(returned: Any) -> Any:
    """What the results of a graph were traced as."""
    return fx.map_arg(returned, lambda node: node.meta["val"])


def placeholders(gm: fx.GraphModule, tensors: Sequence[torch.Tensor]) -> list[Any]:
    given = iter(tensors)
    inputs = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs.append(next(given).clone(memory_format=torch.preserve_format))
        elif node.op == "get_attr":
            inputs.append(getattr(gm, node.target))
    # A clone of a tensor with gaps is dense; the sample itself is what was traced.
    given = iter(tensors)
    return [
        next(given) if node.op == "placeholder" else value
        for node, value in zip(
            (node for node in gm.graph.nodes if node.op in ("placeholder", "get_attr")), inputs, strict=True
        )
    ]


def kind_of(node: fx.Node) -> str:
    rule = rules().get(node.target)
    return "compute" if rule is None else rule.kind


def is_empty(value: Any) -> bool:
    return any(isinstance(each, torch.Tensor) and each.numel() == 0 for each in pytree.tree_leaves(value))


TOLERANCES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (3e-5, 2e-5),
    torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (3.2e-2, 1e-2),
}


def difference(
    got: Sequence[Any], wanted: Sequence[Any], *, values: bool, call: Call, name: str
) -> str | None:
    """Say how results differ from eager's, or None. A float may be farther off if eager itself is, in float64."""
    wanted = [each for each in wanted if each is not None]
    got = [each for each in got if each is not None]
    if len(got) != len(wanted):
        return f"{len(got)} results for {len(wanted)}"
    exact: list[Any] | None = None
    for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(other, torch.Tensor):
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"result {place}: {one.dtype} {tuple(one.shape)} for {other.dtype} {tuple(other.shape)}"
        if not values:
            continue
        one = one.cpu()
        relative, absolute = TOLERANCES.get(other.dtype, (0.0, 0.0))
        if close(one, other, relative, absolute):
            continue
        if name in TIED and picks_the_same(call.tensors[0].cpu(), one, other):
            continue
        if other.dtype.is_floating_point:
            exact = in_float64(call) if exact is None else exact
            if exact and closer(one, other, exact[place], relative, absolute):
                continue
        return f"result {place}: {worst(one, other)}"
    return None


def close(one: torch.Tensor, other: torch.Tensor, relative: float, absolute: float) -> bool:
    if not other.dtype.is_floating_point:
        return bool(torch.equal(one, other))
    return bool(torch.allclose(one.double(), other.double(), rtol=relative, atol=absolute, equal_nan=True))


def in_float64(call: Call) -> list[Any]:
    """What the call gives in float64, or nothing where that is another function."""
    try:
        here = [each.cpu() for each in call.tensors]
        wide = [each.double() if each.dtype.is_floating_point else each for each in here]
        return pytree.tree_leaves(call(*wide))
    except Exception:
        return []


def picks_the_same(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two indices pick the same elements: which one of equal elements comes first is not promised."""
    if one.dtype is not torch.int64 or one.shape != other.shape:
        return False
    # One that is picked along a dimension may have been picked without it.
    pairs = dict.fromkeys(range(x.dim()), (one, other))
    if one.dim() == x.dim() - 1:
        pairs = {dim: (one.unsqueeze(dim), other.unsqueeze(dim)) for dim in range(x.dim())}
    elif one.dim() != x.dim():
        return False
    return any(
        same_values(torch.take_along_dim(x, first, dim), torch.take_along_dim(x, second, dim))
        for dim, (first, second) in pairs.items()
        if fits(x, first, dim)
    )


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def fits(x: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    same = all(a == b for i, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)) if i != dim)
    return same and bool((index >= 0).all()) and bool((index < x.shape[dim]).all())


def closer(one: torch.Tensor, other: torch.Tensor, exact: Any, relative: float, absolute: float) -> bool:
    """Tell whether, wherever a result is not eager's, it is at most twice as far off as eager's is."""
    if not isinstance(exact, torch.Tensor) or exact.shape != one.shape:
        return False
    mine, eagers = (one.double() - exact.double()).abs(), (other.double() - exact.double()).abs()
    # Eager's vectorized kernels give NaN here and there for a number: being nearer is not being wrong.
    eagers = torch.where(eagers.isnan() & ~exact.double().isnan(), math.inf, eagers)
    allowed = torch.maximum(2 * eagers, absolute + relative * exact.double().abs())
    same = (one.double() == other.double()) | (one.isnan() & other.isnan())
    return bool((same | (mine <= allowed) | (eagers.isnan() & mine.isnan())).all())


def worst(one: torch.Tensor, other: torch.Tensor) -> str:
    a, b = one.double().reshape(-1), other.double().reshape(-1)
    off = (a - b).abs().nan_to_num(nan=math.inf)
    off[(a == b) | (a.isnan() & b.isnan())] = 0
    place = int(off.argmax())
    return f"{a[place].item()!r} for {b[place].item()!r} at {place} of {a.numel()}"
