"""Where reports are written: checked before minutes of work, not after."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from aot_registry.reports.errors import ReportFileError
from aot_registry.reports.page import require_jinja

__all__ = ["add_html_argument", "check_report_files", "write_report"]


def add_html_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--html FILE`` to a parser."""
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="also write one HTML page to look at (needs jinja2: pip install 'aot-registry[html]')",
    )


def check_report_files(*, html: Path | None, others: tuple[Path | None, ...] = ()) -> None:
    """Check that reports can be made and written. None stands for one that was not asked for.

    Raises:
        MissingHtmlExtraError: an HTML page is asked for, and jinja2 is missing.
        ReportFileError: a file can't be written there.
    """
    if html is not None:
        require_jinja()
    for path in (html, *others):
        if path is not None:
            _check_writable(path)


def write_report(path: Path, text: str) -> None:
    """Write a report, over one that is there.

    Raises:
        ReportFileError: it can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportFileError(
            f"{str(path)!r} can't be written: {error.strerror}. Name another file."
        ) from error


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise ReportFileError(f"{str(path)!r} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise ReportFileError(
            f"There is no folder {str(path.parent)!r} to write {path.name!r} in. Make it first."
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ReportFileError(f"{str(path)!r} may not be written. Name another file.")
