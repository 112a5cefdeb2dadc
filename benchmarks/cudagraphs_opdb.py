"""Torch's op database, captured on the simulator, replayed on other values and compared with eager bit by bit.

    python benchmarks/cudagraphs_opdb.py                        # all, about ten minutes on one core
    python benchmarks/cudagraphs_opdb.py --every 20 --seed 3    # a sample
    python benchmarks/cudagraphs_opdb.py --only linalg.svd

An entry is an operator in one form: called, called in place, or with its backward. It is *accepted* if at least one
of its samples is captured, and then *exact* if the replays of all that are captured gave eager's bits; *wholly*
accepted if no sample is refused. The exit status is 1 if a replay was silently wrong or raised.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import time
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from aot_cudagraphs.op_database import UNDER_A_MODE, Entry, EntryResult, entries, run_entry
from aot_cudagraphs.simulator import SimulatedEngine

GROUPS = {"forward and in place": ("call", "in-place"), "forward with backward": ("backward",)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one entry in N (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones, with --every")
    parser.add_argument("--only", metavar="NAME", help="entries of one operator")
    parser.add_argument("--verbose", action="store_true", help="name every entry that has a refused sample")
    options = parser.parse_args()

    print(f"torch {torch.__version__}, float32 on the CPU, seed {options.seed}")
    failed = False
    for title, forms in GROUPS.items():
        chosen = [entry for entry in entries(*forms) if options.only in (None, entry.info.name)]
        if options.every > 1:
            chosen = random.Random(options.seed).sample(chosen, len(chosen) // options.every)
        start = time.perf_counter()
        results = [run(entry, options.verbose) for entry in chosen]
        report(title, results, time.perf_counter() - start)
        failed = failed or any(result.status in ("mismatch", "error") for result in results)
    return int(failed)


def run(entry: Entry, verbose: bool) -> EntryResult:
    torch.manual_seed(0)
    result = run_entry(SimulatedEngine(), entry)
    bad = [each for each in result.outcomes if each.status in ("mismatch", "error")]
    for outcome in bad[:3]:
        print(f"  {entry.name}: {outcome.status}: {outcome.detail}", flush=True)
    if verbose:
        refused = collections.Counter(
            f"{each.op} [{each.detail}]" for each in result.outcomes if each.status == "refused"
        )
        for what, count in refused.items():
            print(f"  {entry.name}: {count} of {len(result.outcomes)} samples refused: {what}", flush=True)
    return result


def report(title: str, results: Sequence[EntryResult], seconds: float) -> None:
    status = collections.Counter(result.status for result in results)
    samples = [outcome for result in results for outcome in result.outcomes]
    sample_status = collections.Counter(outcome.status for outcome in samples)
    codes = collections.Counter(outcome.detail for outcome in samples if outcome.status == "refused")
    accepted = status["exact"] + status["mismatch"] + status["error"]
    wholly = sum(
        result.status == "exact" and all(each.status != "refused" for each in result.outcomes)
        for result in results
    )
    share = 100 * status["exact"] / accepted if accepted else 0.0
    print(
        f"{title}: {len(results)} entries, {accepted} accepted ({wholly} wholly), {status['refused']} refused, "
        f"{status['not-run']} not run by eager; {status['exact']} exact ({share:.2f} % of accepted), "
        f"{status['mismatch']} silent mismatches, {status['error']} errors; {seconds:.0f} s"
    )
    modes = {
        result.entry.name
        for result in results
        if any(outcome.detail == UNDER_A_MODE for outcome in result.outcomes)
    }
    print(f"  exact as eager is under a dispatch mode, not without: {', '.join(sorted(modes)) or 'none'}")
    print(
        f"  {len(samples)} samples: "
        + ", ".join(f"{count} {name}" for name, count in sample_status.most_common())
    )
    print("  refused for: " + ", ".join(f"{code} {count}" for code, count in codes.most_common()))


if __name__ == "__main__":
    sys.exit(main())
