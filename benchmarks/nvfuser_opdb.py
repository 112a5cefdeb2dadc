"""Torch's op database through the executor ``nvfuser``, without a GPU.

    python benchmarks/nvfuser_opdb.py                          # all samples of all dtypes: an hour or two on one core
    python benchmarks/nvfuser_opdb.py --every 20 --seed 3      # a sample of the entries
    python benchmarks/nvfuser_opdb.py --max-samples 10         # the first ten of each entry and dtype
    python benchmarks/nvfuser_opdb.py --part 0/8               # one of eight parts, which add up to all
    python benchmarks/nvfuser_opdb.py --only softmax
    python benchmarks/nvfuser_opdb.py --fake-cuda 90           # kernels for an imaginary sm_90, generated and compiled

Each sample is traced with the decompositions of the nvprims backends and claimed. Where all of it is claimed and
something computes, it is made one region, which runs twice: its definition in the reference interpreter, and, where
nvFuser is installed, what nvFuser itself prints of the fusion that it built. Both results are compared with eager's,
in dtype, shape and value. With ``--fake-cuda`` nothing is compared: nvFuser segments, schedules, generates code for a
device that does not exist and compiles it. The exit status is 1 if a value is wrong, or if a claimed fusion could not
be built or compiled; interrupted or terminated, it reports on what was done.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from op_database import Entry

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

TESTS = Path(__file__).resolve().parents[1] / "packages" / "aot-partition" / "tests" / "nvfuser"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one entry in N (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones, with --every")
    parser.add_argument(
        "--part", default="0/1", metavar="K/N", help="every N-th entry, from the K-th (from 0)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="entries of some operators")
    parser.add_argument("--dtypes", nargs="+", metavar="DTYPE", help="by default seven")
    parser.add_argument("--max-samples", type=int, default=10**9, metavar="N", help="of each entry and dtype")
    parser.add_argument(
        "--verbose", action="store_true", help="say of each entry what became of it in float32"
    )
    parser.add_argument("--fake-cuda", type=int, choices=(80, 90, 100), metavar="SM", help="80, 90 or 100")
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    if options.fake_cuda and "AOT_FAKE_SM" not in os.environ:
        import fake_cuda

        return fake_cuda.rerun(options.fake_cuda)
    return Run(options).run()


class Run:
    """One pass over the database."""

    def __init__(self, options: argparse.Namespace) -> None:
        from op_database import CLAIMS, DTYPES

        from aot_partition.nvfuser.claims import ClaimRules
        from aot_partition.nvfuser.executor import NvFuserExecutor
        from aot_partition.nvfuser.testing.engines import PrintedEngine, ReferenceEngine

        def seed(device: torch.device, distance: int) -> tuple[int, int]:
            return 1, 0

        self.options = options
        self.dtypes = [getattr(torch, name) for name in options.dtypes] if options.dtypes else DTYPES
        if options.fake_cuda:
            self.executors = {"compile": NvFuserExecutor(None, ClaimRules(), seed)}
        else:
            self.executors = {"reference": NvFuserExecutor(ReferenceEngine(), CLAIMS, seed)}
            if importlib.util.find_spec("nvfuser_direct") is not None:
                self.executors["printed"] = NvFuserExecutor(PrintedEngine(), CLAIMS, seed)
        self.statuses: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.entries: collections.Counter[str] = collections.Counter()
        self.compared = 0
        self.definitions: set[str] = set()

    def run(self) -> int:
        from op_database import entries

        chosen = [each for each in entries() if not self.options.only or each.info.name in self.options.only]
        part, parts = map(int, self.options.part.split("/"))
        chosen = chosen[part::parts]
        if self.options.every > 1:
            chosen = random.Random(self.options.seed).sample(chosen, len(chosen) // self.options.every)
        # Whoever starts a long run in the background has it ignore interrupts.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        print(
            f"torch {torch.__version__}, paths: {', '.join(self.executors)}, seed {self.options.seed}",
            flush=True,
        )
        start = time.perf_counter()
        try:
            for dtype in self.dtypes:
                self.run_dtype(dtype, chosen)
                seconds = time.perf_counter() - start
                print(f"  {dtype}: {self.compared} samples compared so far, {seconds:.0f} s", flush=True)
        except KeyboardInterrupt:
            print("interrupted: what follows is of what was done")
        self.report(time.perf_counter() - start)
        return int(bool(self.faults))

    def run_dtype(self, dtype: torch.dtype, chosen: list[Entry]) -> None:
        for entry in chosen:
            found = verdict(self.run_entry(entry, dtype))
            if dtype is torch.float32:
                self.entries[found] += 1
                if self.options.verbose:
                    print(f"  {entry.name}: {found}", flush=True)

    def run_entry(self, entry: Entry, dtype: torch.dtype) -> list[str]:
        from op_database import run_sample, samples_of

        statuses = []
        for place, sample in enumerate(samples_of(entry, dtype)):
            if place >= self.options.max_samples:
                break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self.options.fake_cuda:
                    outcome = run_sample(
                        entry, sample, self.executors, compare=False, device="cuda", seen=self.definitions
                    )
                else:
                    outcome = run_sample(entry, sample, self.executors)
            statuses.append(outcome.status)
            self.statuses[outcome.status] += 1
            self.compared += outcome.status == "fusion" and not outcome.random
            self.refusals.update(outcome.reasons if outcome.status in ("refused", "untraced") else ())
            for path, fault in outcome.faults.items():
                self.faults[path] += 1
                print(f"  {entry.name} {dtype} sample {place}, {path}: {fault[:1000]}", flush=True)
        return statuses

    def report(self, seconds: float) -> None:
        found = ", ".join(f"{count} {status}" for status, count in self.statuses.most_common())
        print(f"{sum(self.statuses.values())} samples: {found}; {seconds:.0f} s")
        if self.entries:
            counted = ", ".join(f"{count} {status}" for status, count in self.entries.most_common())
            print(f"entries in float32: {counted}")
        if self.options.fake_cuda:
            failed = self.faults["compile"]
            print(
                f"{len(self.definitions)} fusions for sm_{self.options.fake_cuda}, {failed} did not compile"
            )
        else:
            wrong = ", ".join(f"{self.faults[path]} on the path {path!r}" for path in self.executors)
            print(f"{self.compared} samples compared: wrong or not built: {wrong}")
        print("refused most often:")
        for reason, count in self.refusals.most_common(12):
            print(f"  {count:5} {reason}")


def verdict(statuses: list[str]) -> str:
    """What an entry is by its float32 samples: all in fusions, but for those that compute nothing."""
    if not statuses:
        return "without float32"
    if any(each in ("refused", "untraced") for each in statuses):
        return "partly or not claimed"
    return "wholly in fusions" if "fusion" in statuses else "shape-only or without elements"


if __name__ == "__main__":
    sys.exit(main())
