"""``aot bench``: its arguments, and what it does with them. Importing this module does not import torch."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import aot_registry
from aot_registry.bench.measure import Plan
from aot_registry.bench.workloads import SHIPPED_WORKLOADS, check_workload_name
from aot_registry.reports.files import add_html_argument, check_report_files, write_report

if TYPE_CHECKING:
    from aot_registry.bench.result import WorkloadResult

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Train real models on real data under each usable backend and under eager, in one process and in turns, and
print one table per workload: final loss, largest deviation of the loss curve from eager's, step time, peak
memory, compile time, graphs and fallbacks.
"""

EPILOG = """\
workloads:
  digits-conv     a batch-norm conv net on scikit-learn's 1,797 images of digits
                  (needs scikit-learn: pip install 'aot-registry[bench]')
  text-gpt        a character GPT with dropout on the text of Python's help topics
  FILE.py:build   your own: build() returns (model, batches, loss_fn), where batches is a list of
                  (inputs, target) and loss_fn(output, target) gives the loss

exit status:
  0  every usable backend trained
  1  a usable backend failed, or one that --backend names is not usable
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``bench``, whose parser sets ``run`` to `run`."""
    plan = Plan()
    parser = subparsers.add_parser(
        "bench",
        help="train real models under each backend and compare with eager",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workloads",
        metavar="WORKLOAD",
        nargs="*",
        help=f"what to train: {', '.join(SHIPPED_WORKLOADS)} or FILE.py:build (default: those that ship)",
    )
    parser.add_argument(
        "--backend",
        metavar="NAME",
        action="append",
        help="a backend to compare with eager, torch's own included; may be repeated (default: all installed)",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=_positive,
        default=plan.steps,
        help="training steps of a turn (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_positive,
        default=plan.rounds,
        help="turns of each contender (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", metavar="S", type=int, default=0, help="of parameters, batches and dropout (default: 0)"
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="where to train (default: the accelerator if there is one; FILE.py:build: where it builds)",
    )
    parser.add_argument("--json", action="store_true", help="print plain data instead of tables")
    add_html_argument(parser)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar on stderr (default: if it is a terminal)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the comparison and print it.

    Returns:
        The exit status: 1 if a usable backend failed or one asked for by name is not usable, else 0.

    Raises:
        UnknownWorkloadError, WorkloadFileError: a workload's name means nothing.
        UnknownBackendError: a backend's name means nothing.
        MissingHtmlExtraError, ReportFileError: the page can't be written.
        AotError: a workload can't be built, or fails in eager itself.
    """
    check_report_files(html=args.html)
    names = list(dict.fromkeys(args.workloads or SHIPPED_WORKLOADS))
    for name in names:
        check_workload_name(name)
    # Imported here, as is what follows: --help and the check above need none of it.
    from aot_registry.bench.contenders import check_backend_names, choose_contenders

    check_backend_names(args.backend or [])
    from aot_registry.bench.compare import compare
    from aot_registry.bench.progress import progress_bar
    from aot_registry.bench.table import print_table
    from aot_registry.bench.workloads import build_workload

    # All built before any is trained: what is missing shows at once, not after minutes.
    workloads = [build_workload(name, seed=args.seed, device=args.device) for name in names]
    probes = len(args.backend or aot_registry.list_backends(exclude_tags=()))
    with progress_bar("probing backends", probes, shown=args.progress) as advance:
        contenders = choose_contenders(args.backend, advance=advance)

    plan = Plan(steps=args.steps, rounds=args.rounds)
    usable = sum(contender.availability.usable for contender in contenders)
    results = []
    for workload in workloads:
        # One step more than in the plan: that in which memory is measured.
        with progress_bar(workload.name, usable * (plan.total_steps + 1), shown=args.progress) as advance:
            result = compare(workload, contenders, plan=plan, seed=args.seed, advance=advance)
        results.append(result)
        if not args.json:
            print_table(result)
            print(flush=True)
    if args.html is not None:
        from aot_registry.reports import bench_page

        write_report(args.html, bench_page(results))
    if args.json:
        print(json.dumps({"workloads": [result.to_dict() for result in results]}, indent=2, allow_nan=False))
    return int(any(_went_wrong(result, named=args.backend is not None) for result in results))


def _went_wrong(result: WorkloadResult, *, named: bool) -> bool:
    bad = {"failed", "not usable"} if named else {"failed"}
    return any(contender.status in bad for contender in result.contenders)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number
