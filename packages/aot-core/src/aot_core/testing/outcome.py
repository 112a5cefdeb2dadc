"""What a check of a backend came to: did it compile, did it fall back, did it refuse?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aot_core.errors import AotError, CompilerError
from aot_core.protocol import CompileReport, Decision
from aot_core.report import recent_reports

__all__ = ["fallback_reason", "refusal_in", "reports_since"]


def reports_since(before: Sequence[CompileReport]) -> list[CompileReport]:
    """Return the reports that came after ``before``, an earlier `aot_core.recent_reports`, those of all threads."""
    known = {id(report) for report in before}
    return [report for report in recent_reports() if id(report) not in known]


def fallback_reason(reports: Iterable[CompileReport]) -> str:
    """Return why graphs, or parts of them, ran uncompiled: code and detail of each cause, once; "" if none did."""
    decisions = (decision for report in reports for decision in report.decisions)
    causes = (
        f"{each.code}: {each.detail}" if each.detail else each.code for each in decisions if _left(each)
    )
    return "; ".join(dict.fromkeys(causes))


def _left(decision: Decision) -> bool:
    """Tell whether a decision left something to eager that the backend is there to compile.

    What is skipped within a graph is a compiler's choice; a skipped graph is not compiled.
    """
    return decision.action == "fallback" or (decision.action == "skip" and decision.subject == "graph")


def refusal_in(error: BaseException) -> AotError | None:
    """Return the error of this family by which a backend refused, looked for behind what torch wrapped it in.

    A compiler that broke (`CompilerError`) and a check that found a wrong value (an `AssertionError`) refuse nothing.
    """
    for each in _chain(error):
        if isinstance(each, AotError) and not isinstance(each, (CompilerError, AssertionError)):
            return each
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        # torch's BackendCompilerFailed keeps what a backend raised in an attribute.
        inner = getattr(current, "inner_exception", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__
