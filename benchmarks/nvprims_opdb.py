"""Torch's op database, forward and backward, through claims, partition and regions on ATen, compared with eager.

    python benchmarks/nvprims_opdb.py                            # all samples in float32, some fifteen minutes
    python benchmarks/nvprims_opdb.py --part 0/16                # one of sixteen parts, which add up to all
    python benchmarks/nvprims_opdb.py --every 20 --seed 3        # a sample of the entries
    python benchmarks/nvprims_opdb.py --dtypes bfloat16 int64    # other dtypes
    python benchmarks/nvprims_opdb.py --only nn.functional.gelu

Each sample of each entry is traced by AOTAutograd with the decompositions of the nvprims backends, its joint graph
claimed and cut, its regions run by the executor ``aten``. Outputs and gradients are compared with eager's, with the
tolerances that `torch.testing.assert_close` has for the dtype. Where that fails, both are compared with eager in
float64: *as near* are those whose error is at most twice eager's, or one rounding of the largest value. *As traced*
are those that AOTAutograd alone gets wrong in the same way: it has no gradient of a sparse tensor. The exit
status is 1 if any value is wrong, or if anything but a refusal to trace was raised.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import itertools
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from functorch.compile import aot_function, make_boxed_func
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from aot_partition.executors.run import nvprims_fw_bw_partition_fn, prims_executor
from aot_partition.nvprims import nvprims_decompositions

UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""Entries whose values mean nothing: only their shapes are compared."""

FAILURES = ("wrong", "error")


@dataclasses.dataclass
class Outcome:
    """What became of a sample.

    Args:
        status: ``"equal"``, ``"as near"``, ``"wrong"``, ``"error"``, ``"not traced"`` or ``"not run"``.
        detail: Why.
    """

    status: str
    detail: str = ""


class Sample:
    """One call of an operator, as a function of its tensors."""

    def __init__(self, info: Any, sample: Any) -> None:
        self.info = info
        self.sample = sample
        self.leaves, self.structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def function(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        returned = self.sample.output_process_fn_grad(self.info.op(first, *args, **kwargs))
        return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]

    def run(self, function: Callable[..., Any], convert: torch.dtype | None = None) -> list[Any]:
        """Return outputs and gradients of a call, in another precision if one is named."""
        tensors = []
        for tensor in self.tensors:
            copy = tensor.detach().clone()
            if convert is not None and copy.is_floating_point():
                copy = copy.to(convert)
            tensors.append(copy.requires_grad_(tensor.requires_grad))
        # The seed that the database's random entries set themselves, which a graph does not repeat.
        torch.manual_seed(42)
        outputs = function(*tensors)
        differentiable = [output for output in outputs if output.requires_grad]
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        gradients: Any = ()
        if differentiable and wanted:
            tangents = [torch.full_like(output, 0.5) for output in differentiable]
            gradients = torch.autograd.grad(differentiable, wanted, tangents, allow_unused=True)
        # AOTAutograd gives an input that no output depends on a gradient of zeros.
        return [output.detach() for output in outputs] + [
            torch.zeros_like(tensor) if gradient is None else gradient
            for tensor, gradient in zip(wanted, gradients, strict=bool(gradients))
        ]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return aot_function(
        function,
        fw_compiler=functools.partial(prims_executor, executor="aten"),
        partition_fn=functools.partial(nvprims_fw_bw_partition_fn, executor="aten"),
        decompositions=nvprims_decompositions(),
    )


def run_sample(info: Any, sample: Any) -> Outcome:
    call = Sample(info, sample)
    try:
        expected = call.run(call.function)
    except Exception as error:
        return Outcome("not run", f"{type(error).__name__}: {error}"[:100])
    if not call.tensors:
        return Outcome("not traced", "no tensor among its arguments")
    try:
        got = run_twice(call, compiled(call.function))
    except Exception as error:
        try:
            run_twice(call, only_traced(call.function))
        except Exception as plain:
            return Outcome("not traced", type(plain).__name__)
        return Outcome("error", f"{type(error).__name__}: {error}"[:300])
    outcome = compare(call, got, expected)
    if outcome.status == "wrong" and unlike(got, run_twice(call, only_traced(call.function))) is None:
        return Outcome("as traced", outcome.detail)
    return outcome


def only_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what AOTAutograd makes of a function by itself."""
    return aot_function(function, lambda graph, _: make_boxed_func(graph.forward))


def run_twice(call: Sample, function: Callable[..., Any]) -> list[Any]:
    """Return the second result: tracing draws from the generator."""
    call.run(function)
    return call.run(function)


def compare(call: Sample, got: list[Any], expected: list[Any]) -> Outcome:
    if call.info.name in UNDEFINED:
        same = [x.shape for x in got] == [x.shape for x in expected]
        return Outcome("equal" if same else "wrong", "shapes")
    difference = unlike(got, expected)
    if difference is None:
        return Outcome("equal")
    try:
        exact = call.run(call.function, torch.float64)
    except Exception:
        return Outcome("wrong", difference)
    if not len(got) == len(expected) == len(exact):
        return Outcome("wrong", f"{len(got)} outputs and gradients, {len(expected)} of eager: {difference}")
    for ours, eagers, truth in zip(got, expected, exact, strict=True):
        if unlike([ours], [eagers]) is None:
            continue
        if ours.shape != truth.shape or not error_of(ours, truth) <= allowed(eagers, truth):
            return Outcome("wrong", difference)
    return Outcome("as near", difference)


def unlike(got: list[Any], expected: list[Any]) -> str | None:
    try:
        torch.testing.assert_close(got, expected, equal_nan=True, check_stride=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return None


def allowed(eagers: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the error that counts as near: twice eager's, or one rounding of the largest value."""
    near = 2 * error_of(eagers, truth)
    finite = truth[truth.isfinite()]
    if eagers.is_floating_point() and finite.numel():
        near = max(near, torch.finfo(eagers.dtype).eps * float(finite.abs().max()))
    return near


def error_of(value: torch.Tensor, truth: torch.Tensor) -> float:
    wide = value.to(truth.dtype)
    if not torch.equal(wide.isfinite(), truth.isfinite()):
        return float("inf")
    return float((wide - truth)[truth.isfinite()].abs().max()) if truth.numel() else 0.0


def samples(info: Any, dtype: torch.dtype, limit: int | None) -> Iterator[Any]:
    torch.manual_seed(0)
    gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    return itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=gradient), limit)


def choose(
    dtype: torch.dtype, *, every: int = 1, seed: int = 0, only: str | None = None, part: str = "0/1"
) -> list[Any]:
    """Return the entries of the database that have a dtype, every N-th from the K-th for ``K/N``, or a sample."""
    first, parts = map(int, part.split("/"))
    named = [info for info in op_db if only in (None, info.name)][first::parts]
    fitting = [info for info in named if dtype in info.supported_dtypes("cpu")]
    return random.Random(seed).sample(fitting, max(len(fitting) // every, 1)) if every > 1 else fitting


def run_entry(info: Any, dtype: torch.dtype, limit: int | None = None) -> list[Outcome]:
    """Run and compare the samples of an entry, or the first ``limit``."""
    with warnings.catch_warnings():
        # Samples provoke the warnings of their operators on purpose.
        warnings.simplefilter("ignore")
        return [run_sample(info, sample) for sample in samples(info, dtype, limit)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one entry in N (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones, with --every")
    parser.add_argument(
        "--part", default="0/1", metavar="K/N", help="every N-th entry, from the K-th (from 0)"
    )
    parser.add_argument("--only", metavar="NAME", help="entries of one operator")
    parser.add_argument("--dtypes", nargs="+", default=["float32"], help="default: float32")
    parser.add_argument("--samples", type=int, metavar="N", help="at most N of each entry (default: all)")
    options = parser.parse_args()
    failed = False
    for name in options.dtypes:
        dtype = getattr(torch, name)
        entries = choose(dtype, every=options.every, seed=options.seed, only=options.only, part=options.part)
        counts: collections.Counter[str] = collections.Counter()
        whole: collections.Counter[str] = collections.Counter()
        started = time.perf_counter()
        for info in entries:
            outcomes = run_entry(info, dtype, options.samples)
            found = collections.Counter(outcome.status for outcome in outcomes)
            counts += found
            worst = next(
                (s for s in (*FAILURES, "as near", "as traced", "equal", "not traced") if found[s]), "not run"
            )
            whole[worst] += 1
            for outcome in [each for each in outcomes if each.status in FAILURES][:2]:
                title = f"{info.name} {info.variant_test_name}".strip()
                print(f"  {title}: {outcome.status}: {outcome.detail}", flush=True)
        failed = failed or any(counts[status] for status in FAILURES)
        print(
            f"{name}, torch {torch.__version__}: {len(entries)} entries ("
            + ", ".join(f"{n} {status}" for status, n in whole.most_common())
            + f"); {counts.total()} samples: "
            + ", ".join(f"{n} {status}" for status, n in counts.most_common())
            + f"; {time.perf_counter() - started:.0f} s"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
