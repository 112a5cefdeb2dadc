"""Tables of the page of ``aot explain --html``: what its picture shows, and what goes into a graph and comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aot_core import GraphExplanation, OutputExplanation
from aot_core.sizes import readable_bytes
from aot_registry.reports.step import StepPicture
from aot_registry.reports.tables import Table

__all__ = ["interface_tables", "outputs_table", "step_tables"]


def step_tables(graph: GraphExplanation, step: StepPicture) -> Iterator[Table]:
    """Yield as tables what the picture of a graph shows."""
    rows = [
        [
            stage.stage,
            str(stage.count),
            ", ".join(f"{count} {name}" for name, count in stage.operations.items()),
        ]
        for stage in graph.stages
    ]
    yield Table("Operations of each stage", ["stage", "operations", "of which kind"], rows, numbers=(1,))
    if step.memory:
        yield _memory_table(graph)
    if graph.saved:
        yield Table(
            "Saved for the backward",
            ["value", "kind", "what", "size", "operation", "source"],
            [
                [
                    value.name,
                    f"{value.kind} {value.of}" if value.of else value.kind,
                    value.what,
                    readable_bytes(value.bytes),
                    value.operation,
                    value.source or "",
                ]
                for value in graph.saved
            ],
            numbers=(3,),
        )
    if graph.recomputed:
        yield Table(
            "Computed again in the backward",
            ["value", "operation", "size", "source"],
            [
                [node.name, node.operation, readable_bytes(node.bytes), node.source or ""]
                for node in graph.recomputed
            ],
            numbers=(2,),
        )
    if step.pieces:
        yield Table(
            "Fused regions and captured islands",
            ["piece", "stage", "kind", "operations", "which"],
            [
                [piece.name, piece.stage, piece.kind, str(len(piece.operations)), ", ".join(piece.operations)]
                for piece in step.pieces
            ],
            numbers=(3,),
        )


def _memory_table(graph: GraphExplanation) -> Table:
    found = graph.analyses["memory"]
    rows = [
        ["peak of the forward", found.get("forward_peak")],
        ["peak of the backward", found.get("backward_peak")],
        ["saved between them", found.get("saved_bytes")],
        ["outputs", found.get("output_bytes")],
        ["gradients", found.get("gradient_bytes")],
        ["parameters and inputs, on top", found.get("static_bytes")],
    ]
    return Table(
        "Memory of the step",
        ["", "size"],
        [[str(label), readable_bytes(size)] for label, size in rows if isinstance(size, int)],
        numbers=(1,),
    )


def interface_tables(graph: GraphExplanation) -> Iterator[Table]:
    """Yield inputs, outputs and tangents of a graph."""
    if graph.inputs:
        yield Table(
            "Inputs",
            ["input", "kind", "what", "memory", "written by"],
            [
                [
                    " = ".join((given.name, *given.also_named)),
                    given.kind,
                    given.what + (" grad" if given.requires_grad else ""),
                    ", ".join(
                        [f"view of {given.base}"] * (given.base is not None)
                        + [f"shared with {name}" for name in given.shares_memory_with]
                    ),
                    ", ".join(
                        f"{write.operation}" + (f" ({write.source})" if write.source else "")
                        for write in given.writes
                    ),
                ]
                for given in graph.inputs
            ],
        )
    if graph.outputs:
        yield outputs_table("Outputs", graph.outputs)
    if graph.tangents:
        yield Table(
            "Tangents",
            ["tangent", "of", "what", "size"],
            [[t.name, t.of, t.what, readable_bytes(t.bytes)] for t in graph.tangents],
            numbers=(3,),
        )


def outputs_table(caption: str, outputs: Sequence[OutputExplanation]) -> Table:
    """Return outputs of a graph, or what a call returned, with whose memory they lie in."""
    return Table(
        caption,
        ["output", "kind", "what", "memory of", "shared with"],
        [
            [
                output.name,
                output.kind,
                output.what + (" grad" if output.requires_grad else ""),
                ", ".join(output.alias_of),
                ", ".join(output.shares_memory_with),
            ]
            for output in outputs
        ],
    )
