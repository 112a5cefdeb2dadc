"""``aot bisect``: its arguments, and what it does with them. Importing this module does not import torch."""

from __future__ import annotations

import argparse
import json

from aot_registry.model_arguments import BUILD_EPILOG, add_model_arguments, load_model

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Find out which stage of a compile, which graph and which node make a model err or drift from eager. The model runs
in eager twice and in float64, then compiled up to Dynamo, AOTAutograd, the backend's decompositions, its partitioner
and its compilers, on copies and from one seed, until one of these gives something else. That one is then halved.
"""

EPILOG = f"""\
{BUILD_EPILOG}

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
    add_model_arguments(
        parser, backend="inductor", backend_help="a backend's name, torch's own included, or module:attribute"
    )
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
    workload, inputs, target = load_model(args)
    # Imported here: --help and the checks of names need none of it.
    from aot_registry.bench.progress import progress_bar
    from aot_registry.bisecting.call import bisect
    from aot_registry.bisecting.stages import RUNS_EXPECTED

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
