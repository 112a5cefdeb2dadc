"""A bisection's result for a terminal."""

from __future__ import annotations

from aot_registry.bisecting.result import BisectResult, StageResult
from aot_registry.tables import format_table

__all__ = ["format_result"]

FAILURES_SHOWN = 5

WHAT_RUNS = {
    "eager again": "eager, a second time",
    "dynamo": "the graphs that Dynamo captures, by eager",
    "aot": "+ AOTAutograd's trace: functionalisation, the backward graph",
    "decompositions": "+ the backend's decompositions",
    "partition": "+ the backend's partitioner",
    "backend": "+ the backend's compilers",
}


def format_result(result: BisectResult) -> str:
    """Return the stages as a table, then the verdict with what differs, where, and how to see it again."""
    rows = [(each.stage, each.status, WHAT_RUNS[each.stage], _first_failure(each)) for each in result.stages]
    title = f"{result.backend}, torch {result.torch_version}, seed {result.seed}, compared with {result.reference}"
    lines = [format_table(("stage", "status", "what runs", "first difference"), rows, title=title), ""]
    if result.stage is None:
        return "\n".join([*lines, f"No fault found in {result.runs} runs."])
    lines.append(f"Stage: {result.stage}")
    if result.culprit is not None:
        lines.append(f"Where: {result.culprit}")
    failures = result.failures
    lines += [f"  {failure}" for failure in failures[:FAILURES_SHOWN]]
    if len(failures) > FAILURES_SHOWN:
        lines.append(f"  and {len(failures) - FAILURES_SHOWN} more")
    if result.reproducer is not None:
        shows = "shows the fault"
        if not result.reproduces:
            shows = "does NOT show the fault: it can't import the backend, or random numbers hide it"
        lines.append(f"Reproducer: python {result.reproducer} ({shows})")
    return "\n".join(lines)


def _first_failure(stage: StageResult) -> str:
    return str(stage.failures[0]) if stage.failures else ""
