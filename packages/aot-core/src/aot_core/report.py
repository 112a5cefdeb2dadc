"""Where compile reports go: to whoever is recording, to a short history, to the log and to the trace."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import json
import logging
from collections.abc import Iterator

from aot_core.protocol import CompileReport, Decision

__all__ = ["publish", "publish_late", "recent_reports", "record_reports"]

log = logging.getLogger(__name__)

RECENT_LIMIT = 64

_recorders: contextvars.ContextVar[tuple[list[CompileReport], ...]] = contextvars.ContextVar(
    "aot_core_recorders", default=()
)
_recent: collections.deque[CompileReport] = collections.deque(maxlen=RECENT_LIMIT)


@contextlib.contextmanager
def record_reports() -> Iterator[list[CompileReport]]:
    """Collect the report of every compile inside the ``with`` block.

    Local to the calling context: a compile in another thread is not seen. Blocks nest, and each sees all
    that happens inside it. A report is plain data; it keeps no tensor alive.

    Yields:
        A list that grows by one `CompileReport` per compiled graph, failed ones included.
    """
    reports: list[CompileReport] = []
    token = _recorders.set((*_recorders.get(), reports))
    try:
        yield reports
    finally:
        _recorders.reset(token)


def recent_reports() -> list[CompileReport]:
    """Return the last 64 reports of this process, oldest first, whether or not anyone was recording."""
    return list(_recent)


def publish(report: CompileReport) -> None:
    """Hand a finished report to recorders, history, log and structured trace."""
    for reports in _recorders.get():
        reports.append(report)
    _recent.append(report)
    log.info(
        "%s compiled graph %s: %s in %.3f s, %d decisions",
        report.backend,
        report.graph,
        report.status,
        report.compile_seconds,
        len(report.decisions),
    )
    for decision in report.decisions:
        log.debug("%s %s %s", report.backend, report.graph, decision)
    _trace(report)


def publish_late(report: CompileReport, decision: Decision) -> None:
    """Log a decision that was added to a published report, and trace the report anew.

    Whoever recorded the report sees the decision in it.
    """
    log.debug("%s %s %s", report.backend, report.graph, decision)
    _trace(report)


def _trace(report: CompileReport) -> None:
    # Imported here: recording and reading reports must not import torch.
    from aot_core import _compat

    _compat.trace_artifact("aot_compile_report", lambda: json.dumps(report.to_dict()))
