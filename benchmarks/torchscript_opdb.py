"""Torch's op database through `ts_compile`, and through torch's own function of that name, compared with eager.

    python benchmarks/torchscript_opdb.py                          # all: some hours on one core
    python benchmarks/torchscript_opdb.py --every 20 --seed 3      # a sample of the entries
    python benchmarks/torchscript_opdb.py --only linalg.svd --verbose
    python benchmarks/torchscript_opdb.py --samples 2 --dtypes float32 --shapes static
    python benchmarks/torchscript_opdb.py --part 0/2               # one half; the other may run beside it

An entry is an operator with one dtype, forward alone or with its gradient, in static or symbolic shapes. It is
*right* if all of its samples gave eager's values, dtypes and aliases in two calls, and *exact* if these were eager's
bits. *As traced* are those whose trace itself is not eager's (torch's decomposition rounds otherwise than its kernel
does), and which gave the trace's bits; they are right, and counted. *Native* are the nodes that run in TorchScript;
the others run in FX. The exit status is 1 if an entry is not right or an exception has another type than eager's.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import inspect
import os
import random
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from aot_ts_fusion import op_database, ts_compile
from aot_ts_fusion.op_database import Entry, Outcome


def torch_ts_compile(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """Torch's own compiler. What it returns is boxed."""
    from functorch.compile import ts_compile as compile_with_torch

    return compile_with_torch(gm, list(inputs))


class Table:
    """Counts of one compiler in one group of entries."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.entries: collections.Counter[str] = collections.Counter()
        self.samples: collections.Counter[str] = collections.Counter()
        self.cut_out: collections.Counter[str] = collections.Counter()
        self.native = 0
        self.operations = 0

    def add(self, outcomes: Sequence[Outcome]) -> str:
        """Add the samples of an entry, and return what it is."""
        self.samples.update(each.status for each in outcomes)
        self.native += sum(each.native for each in outcomes)
        self.operations += sum(each.operations for each in outcomes)
        for each in outcomes:
            self.cut_out.update(each.cut_out)
        order = ("wrong", "raised", "not-compiled", *reversed(op_database.RIGHT))
        status = next(each for each in order if any(one.status == each for one in outcomes))
        self.entries[status] += 1
        return status

    def line(self) -> str:
        """Return the counts as a line."""
        total = sum(self.entries.values())
        right = sum(self.entries[each] for each in op_database.RIGHT)
        share = 100 * right / total if total else 0.0
        native = (
            f", native nodes {100 * self.native / self.operations:.2f} % of {self.operations}"
            if self.native
            else ""
        )
        return (
            f"  {self.title}: {total} entries, {right} right ({share:.2f} %), {self.entries['exact']} exact, "
            f"{self.entries['as-traced']} as traced, "
            f"{self.entries['wrong']} silently wrong, {self.entries['raised']} raise, "
            f"{self.entries['not-compiled']} not compiled; {sum(self.samples.values())} samples, "
            f"{self.samples['wrong']} wrong{native}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one entry in N (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones, with --every")
    parser.add_argument("--only", metavar="NAME", help="entries of one operator")
    parser.add_argument(
        "--samples", type=int, metavar="N", help="the first N samples of an entry (default: all)"
    )
    parser.add_argument("--dtypes", nargs="+", default=[str(each)[6:] for each in op_database.DTYPES])
    parser.add_argument("--shapes", nargs="+", default=["static", "dynamic"], choices=["static", "dynamic"])
    parser.add_argument(
        "--forms", nargs="+", default=["forward", "gradient"], choices=["forward", "gradient"]
    )
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every Nth entry, from the Ith on")
    parser.add_argument("--ours-only", action="store_true", help="leave torch's own out")
    parser.add_argument("--no-errors", action="store_true", help="leave the inputs that must raise out")
    parser.add_argument("--verbose", action="store_true", help="name every operator that runs in FX")
    options = parser.parse_args()

    print(f"torch {torch.__version__}, CPU, seed {options.seed}, part {options.part}", flush=True)
    save_time()
    failed = False
    for form in options.forms:
        for shapes in options.shapes:
            failed |= sweep(form, shapes, options)
    if not options.no_errors and not options.only:
        failed |= errors(options)
    return int(failed)


def save_time() -> None:
    """Leave out work that is the same for each sample, nearly a third of the whole; no result depends on it."""
    # torch's own compiler reads the source of the same two dozen methods of fx.GraphModule for each graph.
    inspect.getsource = functools.lru_cache(maxsize=256)(inspect.getsource)
    # A trace with symbolic shapes makes garbage by the thousand, among a million objects that stay.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def chosen(form: str, shapes: str, options: argparse.Namespace) -> list[Entry]:
    """Return the entries to run."""
    dtypes = [getattr(torch, name) for name in options.dtypes]
    found = op_database.entries(dtypes, gradient=form == "gradient")
    found = [entry for entry in found if options.only in (None, entry.info.name)]
    if options.every > 1:
        found = random.Random(f"{options.seed} {form} {shapes}").sample(found, len(found) // options.every)
    part, parts = map(int, options.part.split("/"))
    return found[part::parts]


def sweep(form: str, shapes: str, options: argparse.Namespace) -> bool:
    """Run one group of entries, print its rows, and tell whether one was not right."""
    ours, theirs = Table("ours        "), Table("torch's own")
    by_dtype: dict[str, Table] = {}
    start, skipped = time.perf_counter(), 0
    for entry in chosen(form, shapes, options):
        found: list[Outcome] = []
        found_by_torch: list[Outcome] = []
        for sample in op_database.first_samples(entry, options.samples):
            traced = op_database.trace_sample(entry, sample, dynamic=shapes == "dynamic")
            if traced is None:
                continue
            found.append(op_database.run_sample(ts_compile, traced))
            if found[-1].status not in op_database.RIGHT:
                print(f"  {entry.name} {shapes}: {found[-1].status}: {found[-1].detail}", flush=True)
            # What fails for one sample is not tried for all: it takes torch a while each.
            if not options.ours_only and (
                not found_by_torch or found_by_torch[-1].status in op_database.RIGHT
            ):
                found_by_torch.append(op_database.run_sample(torch_ts_compile, traced))
        if not found:
            skipped += 1
            continue
        ours.add(found)
        by_dtype.setdefault(str(entry.dtype)[6:], Table(str(entry.dtype)[6:])).add(found)
        if found_by_torch:
            theirs.add(found_by_torch)
    print(f"{form}, {shapes} shapes: {time.perf_counter() - start:.0f} s, {skipped} entries without a trace")
    print(ours.line())
    if not options.ours_only:
        print(theirs.line())
    for table in by_dtype.values():
        print(f"  {table.line().strip()}")
    if options.verbose:
        print("  in FX: " + ", ".join(f"{name} {count}" for name, count in ours.cut_out.most_common()))
    sys.stdout.flush()
    return any(ours.entries[status] for status in ("wrong", "raised", "not-compiled"))


def errors(options: argparse.Namespace) -> bool:
    """Run inputs that must raise, print the rows, and tell whether one raised another type."""
    counts: dict[str, collections.Counter[str]] = {
        "ours": collections.Counter(),
        "torch": collections.Counter(),
    }
    recorded = [*op_database.error_entries(), *op_database.unfactorable().items()]
    part, parts = map(int, options.part.split("/"))
    for name, call in recorded[part::parts]:
        for who, compiler in (("ours", ts_compile), ("torch", torch_ts_compile)):
            if who == "torch" and options.ours_only:
                continue
            outcome = op_database.run_error(compiler, name, call)
            if isinstance(outcome, str):
                counts[who][outcome] += 1
                continue
            counts[who][
                "same type" if outcome.same else "nothing" if outcome.compiled is None else "other type"
            ] += 1
            if who == "ours" and not outcome.same:
                print(f"  {name}: eager raises {outcome.eager.__name__}, ours {outcome.compiled}", flush=True)
    print("inputs that must raise:")
    for who, found in counts.items():
        if found:
            print(f"  {who}: " + ", ".join(f"{count} {what}" for what, count in found.most_common()))
    return bool(counts["ours"]["other type"] or counts["ours"]["nothing"])


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = main()
    sys.exit(status)
