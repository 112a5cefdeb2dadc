"""The page of ``aot explain --html``: each graph's step as a picture, its inputs and outputs, and every decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aot_core import CompileReport, Decision, Explanation, GraphBreak, GraphExplanation
from aot_core.sizes import readable_bytes, readable_seconds
from aot_registry.reports.charts import Bar, bar_chart
from aot_registry.reports.draw_step import draw_step
from aot_registry.reports.explain_tables import interface_tables, outputs_table, step_tables
from aot_registry.reports.page import render
from aot_registry.reports.source_text import SourceText
from aot_registry.reports.step import StepPicture, picture_of
from aot_registry.reports.tables import Table

__all__ = ["explain_page"]

STAGE_HUES = {"compile": 8, "joint": 3, "forward": 1, "backward": 2, "inference": 1}

LEGEND = (
    ("forward", "operation of the forward"),
    ("inference", "operation of the graph"),
    ("backward", "operation of the backward"),
    ("recomputed", "computed again in the backward"),
    ("fused", "fused region"),
    ("captured", "captured island"),
    ("saved", "waits for the backward"),
)


def explain_page(
    explanation: Explanation,
    reports: Sequence[CompileReport] = (),
    *,
    name: str | None = None,
    sources: Iterable[Path] = (),
) -> str:
    """Return a page that shows an explanation: HTML that needs no other file, no script and no network.

    Args:
        explanation: What `aot_core.explain` returned.
        reports: Those of the same compiles, as `aot_core.record_reports` collects them: for the compile times.
        name: Of what was explained; by default the name of its class or function.
        sources: Files whose lines are quoted next to what names them.

    Raises:
        MissingHtmlExtraError: jinja2 is not installed.
    """
    text = SourceText(sources)
    times = {report.graph: report for report in reports}
    subject = name or explanation.subject
    return render(
        "explain.html.jinja",
        title=f"aot explain: {subject} with {explanation.backend}",
        subject=subject,
        explanation=explanation,
        facts=_facts(explanation),
        graphs=[_graph(graph, times.get(graph.name), text) for graph in explanation.graphs],
        breaks=[_break(entry, text) for entry in explanation.breaks],
        results=outputs_table("What the call returned", explanation.results),
        settings=Table(
            "Options", ["option", "value"], [[k, repr(v)] for k, v in explanation.settings.items()]
        ),
    )


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    facts = [
        ("graphs", str(len(explanation.graphs))),
        ("graph breaks", str(len(explanation.breaks))),
        ("fallbacks", str(len(explanation.fallbacks))),
        ("decisions", str(sum(len(graph.decisions) for graph in explanation.graphs))),
        ("saved activations", readable_bytes(explanation.activation_bytes)),
        ("writes", ", ".join(explanation.written) or "nothing"),
    ]
    if explanation.reshaped:
        facts.append(("changes size, strides or offset of", ", ".join(explanation.reshaped)))
    return facts


def _graph(graph: GraphExplanation, report: CompileReport | None, text: SourceText) -> dict[str, Any]:
    step = picture_of(graph)
    return {
        "name": graph.name,
        "mode": graph.mode,
        "status": graph.status,
        "problems": [problem for problem in (graph.error, graph.unknown) if problem],
        "picture": None if step is None else draw_step(step),
        "legend": [] if step is None else _legend(step),
        "peak": _peak(step),
        "saved_beside": 0 if step is None else step.saved_beside,
        "memory_error": graph.analyses.get("memory", {}).get("error"),
        "step_tables": [] if step is None else list(step_tables(graph, step)),
        "compile": None if report is None else _compile_chart(report),
        "tables": list(interface_tables(graph)),
        "decisions": [_decision(decision, text) for decision in graph.decisions],
    }


def _legend(step: StepPicture) -> list[tuple[str, str]]:
    kinds = {span.kind.partition(" ")[0] for lane in (*step.lanes, *step.saved) for span in lane.spans}
    return [(kind, words) for kind, words in LEGEND if kind in kinds]


def _peak(step: StepPicture | None) -> str | None:
    if step is None or step.peak is None:
        return None
    node = step.peak.node
    where = f" ({node.source})" if node.source else ""
    return (
        f"Peak {readable_bytes(step.peak.bytes)}, at {node.name} = {node.operation}{where} in the {step.peak.stage}; "
        "parameters and inputs come on top."
    )


def _compile_chart(report: CompileReport) -> str:
    bars = [
        Bar(
            "compile, all together",
            report.compile_seconds,
            readable_seconds(report.compile_seconds),
            hue=STAGE_HUES["compile"],
        )
    ]
    bars += [
        Bar(
            "partition" if stage == "joint" else stage,
            numbers["seconds"],
            readable_seconds(numbers["seconds"]),
            start=numbers["start"],
            hue=STAGE_HUES.get(stage, 4),
        )
        for stage, numbers in report.stages.items()
    ]
    label = f"When which stage of graph {report.graph} was compiled: " + ", ".join(
        f"{bar.label} {bar.words}" for bar in bars
    )
    return bar_chart(bars, label=label)


def _break(entry: GraphBreak, text: SourceText) -> dict[str, Any]:
    first, _, rest = entry.reason.strip().partition("\n")
    return {"reason": first, "more": rest.strip(), "source": entry.source, "quote": text.quote(entry.source)}


def _decision(decision: Decision, text: SourceText) -> dict[str, Any]:
    return {
        "stage": decision.stage,
        "action": decision.action,
        "subject": decision.subject,
        "code": decision.code,
        "detail": decision.detail,
        "source": decision.source,
        "quote": text.quote(decision.source),
    }
