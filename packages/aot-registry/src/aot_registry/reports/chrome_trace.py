"""When which stage of which graph was compiled, as a Chrome trace: for Perfetto, ``chrome://tracing`` and others.

The format is the "Trace Event Format": complete events (``"X"``) with times in microseconds, on one thread for each
graph, and metadata events (``"M"``) that name process and threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aot_core.protocol import CompileReport

__all__ = ["chrome_trace"]

PROCESS = 1
"""Number of the one process: a trace holds what one process compiled."""


def chrome_trace(reports: Iterable[CompileReport]) -> dict[str, Any]:
    """Return compile reports as a trace, ready for `json.dump`.

    ::

        #0 [0/0]   |        compile                |
                     |joint| |forward| |backward|
        #1 [1/0]                                     | compile |

    Between the stages AOTAutograd traces. Times count from the first compile of all.

    Args:
        reports: As `aot_core.record_reports` collects them.
    """
    found = sorted(reports, key=lambda report: report.started)
    events = [_named("process_name", "torch.compile")]
    for thread, report in enumerate(found, start=1):
        events.append(_named("thread_name", f"graph {report.graph}", thread))
        events += _events(report, thread, found[0].started)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(report: CompileReport, thread: int, origin: float) -> Iterator[dict[str, Any]]:
    start = report.started - origin
    whole = {
        "graph": report.graph,
        "backend": report.backend,
        "status": report.status,
        "decisions": [str(decision) for decision in report.decisions],
    }
    if report.error is not None:
        whole["error"] = report.error
    yield _slice("compile", thread, start, report.compile_seconds, whole)
    for stage, numbers in report.stages.items():
        about = {"graph": report.graph, "operations": numbers["operations"]}
        yield _slice(stage, thread, start + numbers["start"], numbers["seconds"], about)


def _slice(name: str, thread: int, start: float, seconds: float, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": "compile",
        "pid": PROCESS,
        "tid": thread,
        "ts": 1e6 * start,
        "dur": 1e6 * seconds,
        "args": about,
    }


def _named(kind: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": PROCESS, "tid": thread, "args": {"name": name}}
