"""Arguments of the commands that run one batch of a user's model under one backend, and what they stand for.

Importing this module does not import torch.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from aot_registry.bench.workloads.user_file import parse_reference
from aot_registry.bisecting.errors import InvalidSubjectError

if TYPE_CHECKING:
    from aot_registry.bench.workloads.workload import Workload

__all__ = ["BUILD_EPILOG", "LoadedModel", "add_model_arguments", "load_model"]

BUILD_EPILOG = "FILE.py:build: build() returns (model, batches, loss_fn), as for `aot bench`."


class LoadedModel(NamedTuple):
    """A model and the batch to run.

    Attributes:
        workload: The model, and its loss.
        inputs: Of the model: a tensor, a tuple of positional arguments or a dictionary of keyword arguments.
        target: Of the loss.
    """

    workload: Workload
    inputs: Any
    target: Any


def add_model_arguments(parser: argparse.ArgumentParser, *, backend: str, backend_help: str) -> None:
    """Add ``FILE.py:build``, ``--backend``, ``--batch``, ``--seed`` and ``--device`` to a parser.

    Args:
        parser: Of a subcommand.
        backend: The backend where none is named.
        backend_help: What may be named.
    """
    parser.add_argument("model", metavar="FILE.py:build", help="the model, its batches and its loss")
    parser.add_argument(
        "--backend", metavar="NAME", default=backend, help=f"{backend_help} (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", metavar="N", type=int, default=0, help="the batch to run, counted from 0 (default: 0)"
    )
    parser.add_argument(
        "--seed", metavar="S", type=int, default=0, help="of parameters, batches and dropout (default: 0)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="where to run (default: where build() puts it)")


def load_model(args: argparse.Namespace) -> LoadedModel:
    """Build the model that arguments of `add_model_arguments` name.

    Names are checked before torch is imported. As for ``python FILE.py``, modules of the working directory can be
    imported from here on: the user's backend may lie there.

    Raises:
        UnknownBackendError: no such backend.
        WorkloadFileError, WorkloadBuildError, WorkloadContractError: the model can't be built.
        InvalidSubjectError: there is no such batch.
    """
    parse_reference(args.model)
    # Imported here: --help and the check above need none of it.
    from aot_registry.bench.contenders import check_backend_names

    if ":" not in args.backend:
        check_backend_names([args.backend])
    from aot_registry.bench.workloads import build_workload

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    workload = build_workload(args.model, seed=args.seed, device=args.device)
    if not 0 <= args.batch < len(workload.batches):
        raise InvalidSubjectError(
            f"{args.model} has {len(workload.batches)} batches; --batch must be from 0 to "
            f"{len(workload.batches) - 1}, got {args.batch}."
        )
    return LoadedModel(workload, *workload.batches[args.batch])
