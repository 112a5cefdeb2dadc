"""An explanation as tables: for a terminal, or in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aot_core.sizes import readable_bytes

if TYPE_CHECKING:
    from aot_core.explaining.explanation import (
        Explanation,
        GraphExplanation,
        InputExplanation,
        OutputExplanation,
    )

__all__ = ["as_markdown", "as_text"]

MAX_OPERATORS = 6
"""Operators that are listed for a stage; the others are counted."""


@dataclasses.dataclass(frozen=True)
class _Section:
    """A heading, lines, and a table that may be empty."""

    title: str
    level: int
    lines: list[str] = dataclasses.field(default_factory=list)
    headers: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)


def as_text(explanation: Explanation) -> str:
    """Return an explanation as aligned columns."""
    blocks = []
    for section in _sections(explanation):
        indent = "  " * (section.level - 1)
        lines = [indent + section.title, *(f"{indent}  {line}" for line in section.lines)]
        table = [section.headers, *section.rows] if section.rows else []
        widths = (
            [max(len(row[column]) for row in table) for column in range(len(section.headers))]
            if table
            else []
        )
        for row in table:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"{indent}  {'  '.join(cells)}".rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def as_markdown(explanation: Explanation) -> str:
    """Return an explanation as headings, lists and tables of Markdown."""
    blocks = []
    for section in _sections(explanation):
        blocks.append(f"{'#' * (section.level + 1)} {_escaped(section.title)}")
        if section.lines:
            blocks.append("\n".join(f"- {_escaped(line)}" for line in section.lines))
        if section.rows:
            rule = tuple("---" for _ in section.headers)
            rows = [tuple(map(_escaped, row)) for row in (section.headers, *section.rows)]
            blocks.append("\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])))
    return "\n\n".join(blocks) + "\n"


def _sections(explanation: Explanation) -> Iterator[_Section]:
    yield _Section(f"{explanation.subject} with {explanation.backend}", 1, _summary(explanation))
    if explanation.results:
        yield _Section(
            "Returns",
            2,
            headers=("result", "what", "memory"),
            rows=list(map(_output_row, explanation.results)),
        )
    if explanation.breaks:
        rows: list[tuple[str, ...]] = [
            (_first_line(entry.reason), entry.source or "") for entry in explanation.breaks
        ]
        yield _Section("Graph breaks", 2, headers=("reason", "source"), rows=rows)
    for graph in explanation.graphs:
        yield from _graph_sections(graph)


def _summary(explanation: Explanation) -> list[str]:
    lines = [
        f"{_count(len(explanation.graphs), 'graph')}, {_count(len(explanation.breaks), 'graph break')}, "
        f"{_count(len(explanation.fallbacks), 'fallback')}",
        f"writes: {', '.join(explanation.written) or 'nothing'}",
    ]
    if explanation.reshaped:
        lines.append(f"changes size, strides or offset of: {', '.join(explanation.reshaped)}")
    elsewhere = dict.fromkeys((*explanation.written_elsewhere, *explanation.reshaped_elsewhere))
    if elsewhere:
        lines.append(f"of these, outside the graphs below: {', '.join(elsewhere)}")
    if any(graph.mode == "training" for graph in explanation.graphs):
        lines.append(f"saved activations: {readable_bytes(explanation.activation_bytes)}")
    return lines


def _graph_sections(graph: GraphExplanation) -> Iterator[_Section]:
    lines = [f"{name}: {text}" for name, text in (("error", graph.error), ("unknown", graph.unknown)) if text]
    lines += [
        f"{stage.stage}: {_count(stage.count, 'operation')}{_operators(stage.operations)}"
        for stage in graph.stages
    ]
    yield _Section(f"Graph {graph.name}: {graph.mode}, {graph.status}", 2, lines)
    if graph.inputs:
        yield _Section(
            "Inputs",
            3,
            headers=("input", "kind", "what", "memory", "changes"),
            rows=list(map(_input_row, graph.inputs)),
        )
    if graph.outputs:
        yield _Section(
            "Outputs", 3, headers=("output", "what", "memory"), rows=list(map(_output_row, graph.outputs))
        )
    if graph.tangents:
        yield _Section(
            "Tangents",
            3,
            headers=("tangent", "of", "what", "size"),
            rows=[(t.name, t.of, t.what, readable_bytes(t.bytes)) for t in graph.tangents],
        )
    if graph.saved:
        held = readable_bytes(graph.saved_input_bytes)
        yield _Section(
            "Saved for the backward",
            3,
            [
                f"activations: {readable_bytes(graph.activation_bytes)}; parameters and inputs, held anyway: {held}"
            ],
            ("value", "kind", "what", "size", "operation", "source"),
            [
                (
                    value.name,
                    f"{value.kind} {value.of}" if value.of else value.kind,
                    value.what,
                    readable_bytes(value.bytes),
                    value.operation,
                    value.source or "",
                )
                for value in graph.saved
            ],
        )
    if graph.decisions:
        yield _Section("Decisions", 3, [str(decision) for decision in graph.decisions])


def _input_row(given: InputExplanation) -> tuple[str, ...]:
    memory = []
    if given.base is not None:
        memory.append(f"view of {given.base}")
    if given.overlaps:
        memory.append(f"overlaps {', '.join(given.overlaps)}")
    apart = [name for name in given.shares_memory_with if name not in given.overlaps]
    if apart:
        memory.append(f"in one storage with {', '.join(apart)}")
    changes = []
    for write in given.writes:
        notes = [write.operation, *([write.source] if write.source else [])]
        notes += ["hidden from autograd"] if write.hidden else []
        changes.append(f"data ({', '.join(notes)})")
    if given.metadata_change is not None:
        change = given.metadata_change
        where = f", {change.source}" if change.source else ""
        changes.append(f"metadata (size {list(change.size)}, strides {list(change.stride)}{where})")
    return (
        " = ".join((given.name, *given.also_named)),
        given.kind,
        given.what + (" grad" if given.requires_grad else ""),
        "; ".join(memory),
        "; ".join(dict.fromkeys(changes)),
    )


def _output_row(output: OutputExplanation) -> tuple[str, ...]:
    alias_of, beside = output.alias_of, output.shares_memory_with
    if output.kind == "input":
        alias_of, beside = alias_of[:1], (*alias_of[1:], *beside)
    memory = f"{output.kind} {', '.join(alias_of)}".rstrip()
    if beside:
        memory += f"; in one storage with {', '.join(beside)}"
    return output.name, output.what + (" grad" if output.requires_grad else ""), memory


def _operators(operations: dict[str, int]) -> str:
    if not operations:
        return ""
    listed = [f"{count} {name}" for name, count in list(operations.items())[:MAX_OPERATORS]]
    rest = len(operations) - len(listed)
    return ": " + ", ".join(listed) + (f" and {_count(rest, 'other kind')}" if rest else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _escaped(text: str) -> str:
    for mark in ("\\", "|", "_", "*", "[", "]", "<", "#", "`"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
