"""``aot bisect``: its arguments, and what it does with them. Importing this module does not import torch."""

from __future__ import annotations

import argparse
import json
import os
import sys

from aot_registry.bench.workloads.user_file import parse_reference
from aot_registry.bisecting.errors import InvalidSubjectError

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Find out which stage of a compile, which graph and which node make a model err or drift from eager. The model runs
in eager twice and in float64, then compiled up to Dynamo, AOTAutograd, the backend's decompositions, its partitioner
and its compilers, on copies and from one seed, until one of these gives something else. That one is then halved.
"""

EPILOG = """\
FILE.py:build: build() returns (model, batches, loss_fn), as for `aot bench`.

exit status:
  0  no fault found
  1  a fault found
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``bisect``, whose parser sets ``run`` to `run`."""
    parser = subparsers.add_parser(
        "bisect",
        help="find the stage, graph and node that break a model",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="FILE.py:build", help="the model, its batches and its loss")
    parser.add_argument(
        "--backend",
        metavar="NAME",
        default="inductor",
        help="a backend's name, torch's own included, or module:attribute (default: %(default)s)",
    )
    parser.add_argument(
        "--batch", metavar="N", type=int, default=0, help="the batch to run, counted from 0 (default: 0)"
    )
    parser.add_argument(
        "--seed", metavar="S", type=int, default=0, help="of parameters, batches and dropout (default: 0)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="where to run (default: where build() puts it)")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default="aot_bisect_repro.py",
        help="where to write a file that shows the fault by itself (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print plain data instead of text")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show a progress bar on stderr (default: if it is a terminal)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Bisect and print the result.

    Returns:
        The exit status: 1 if a fault was found, else 0.

    Raises:
        UnknownBackendError: no such backend.
        WorkloadFileError, WorkloadBuildError, WorkloadContractError: the model can't be built.
        AotError: see `aot_registry.bisect`.
    """
    parse_reference(args.model)
    # Imported here, as is what follows: --help and the checks above and below need none of it.
    from aot_registry.bench.contenders import check_backend_names

    by_name = ":" not in args.backend
    if by_name:
        check_backend_names([args.backend])
    from aot_registry.bench.progress import progress_bar
    from aot_registry.bench.workloads import build_workload
    from aot_registry.bisecting.call import bisect
    from aot_registry.bisecting.stages import RUNS_EXPECTED

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as for `python FILE.py`: the user's backend may lie there
    workload = build_workload(args.model, seed=args.seed, device=args.device)
    if not 0 <= args.batch < len(workload.batches):
        raise InvalidSubjectError(
            f"{args.model} has {len(workload.batches)} batches; --batch must be from 0 to "
            f"{len(workload.batches) - 1}, got {args.batch}."
        )
    inputs, target = workload.batches[args.batch]
    with progress_bar(args.backend, RUNS_EXPECTED, shown=args.progress) as advance:
        result = bisect(
            workload.model,
            inputs,
            args.backend,
            loss_fn=workload.loss_fn,
            target=target,
            seed=args.seed,
            reproducer_path=args.output,
            advance=advance,
        )
    print(json.dumps(result.to_dict(), indent=2, allow_nan=False) if args.json else result)
    return int(result.stage is not None)
