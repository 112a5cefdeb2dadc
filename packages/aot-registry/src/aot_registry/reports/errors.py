"""Why a report can't be written, each with a page of its own in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = ["MissingHtmlExtraError", "ReportFileError"]


class MissingHtmlExtraError(AotError, ModuleNotFoundError):
    """An HTML page was asked for, and jinja2 is not installed. Names the extra that brings it."""


class ReportFileError(AotError, OSError):
    """A report can't be written where it was asked for."""
