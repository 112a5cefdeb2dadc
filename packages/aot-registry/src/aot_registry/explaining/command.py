"""``aot explain``: its arguments, and what it does with them. Importing this module does not import torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from aot_registry.model_arguments import BUILD_EPILOG, add_model_arguments, load_model
from aot_registry.reports.files import add_html_argument, check_report_files, write_report

__all__ = ["add_parser", "run"]

DESCRIPTION = """\
Call a copy of a model once, compiled, and tell what was found out on the way: what it does to its inputs, in how many
graphs, what is saved for the backward, and every decision of the backend. Nothing of the model changes.
"""

EPILOG = f"""\
{BUILD_EPILOG}

exit status:
  0  all graphs were compiled, or run as they are for a reason that is told
  1  the backend failed on a graph
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand ``explain``, whose parser sets ``run`` to `run`."""
    parser = subparsers.add_parser(
        "explain",
        help="tell what a compiled model does, and what its backend decided",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(
        parser,
        backend="aot_core_eager",
        backend_help="a backend made by aot_core.aot_autograd: its name, or module:attribute",
    )
    parser.add_argument("--inference", action="store_true", help="call the model without gradients")
    parser.add_argument("--json", action="store_true", help="print plain data instead of text")
    add_html_argument(parser)
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="also write when which stage was compiled, as a Chrome trace in JSON, for Perfetto and others",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain and print the result.

    Returns:
        The exit status: 1 if the backend failed on a graph, else 0.

    Raises:
        MissingHtmlExtraError, ReportFileError: a report can't be written.
        UnknownBackendError, UnexplainableBackendError: there is no such backend, or none that can be explained.
        AotError: the model can't be built, copied or called.
    """
    check_report_files(html=args.html, others=(args.trace,))
    model = load_model(args)
    # Imported here: --help and the checks above need none of it.
    from aot_registry.explaining.call import explain_model
    from aot_registry.reports import chrome_trace, explain_page

    explanation, reports = explain_model(
        model.workload.model, model.inputs, args.backend, seed=args.seed, inference=args.inference
    )
    if args.html is not None:
        file = Path(args.model.rpartition(":")[0])
        page = explain_page(
            explanation, reports, name=f"{explanation.subject} of {args.model}", sources=[file]
        )
        write_report(args.html, page)
    if args.trace is not None:
        write_report(args.trace, json.dumps(chrome_trace(reports)))
    print(json.dumps(explanation.to_dict(), indent=2) if args.json else explanation)
    return int(any(graph.status == "failed" for graph in explanation.graphs))
