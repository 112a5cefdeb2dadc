"""One graph laid out over one axis: what runs, what waits for the backward, what is computed again, what is fused.

::

    memory        ╭──╮_╭─╮        bytes at each operation
    forward   ▮▮▮▮▮▮▮▮▮           operations, in the order in which they run
    backward           ▮▮▮▮▮▮▮▮
    again                ▮  ▮     those of the forward that the backward computes again
    pieces     ███  ██    ████    fused regions, captured islands
    saved          ═══════════    from where a value is made to where it is last read
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from aot_core import Decision, GraphExplanation, NodeExplanation, SavedValue
from aot_core.sizes import readable_bytes

__all__ = ["Lane", "Peak", "Piece", "Span", "StepPicture", "picture_of", "words_for"]

MAX_CELLS = 400
"""Operations that are drawn one by one; of more, neighbours of one kind are drawn as one."""

MAX_SAVED = 12
"""Saved values that are drawn; the table has all."""


@dataclasses.dataclass(frozen=True)
class Span:
    """Something from one position of the step to another.

    Args:
        start: First position.
        end: Position after the last.
        words: What it is.
        kind: Class of the style sheet, ``"forward"`` or ``"saved"``, say.
    """

    start: int
    end: int
    words: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Lane:
    """Spans in one line, below words on the left and on the right."""

    label: str
    spans: tuple[Span, ...]
    words: str = ""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A fused region or a captured island.

    Args:
        stage: ``"forward"``, ``"backward"`` or ``"inference"``.
        name: Name of it.
        kind: ``"fused"`` or ``"captured"``.
        operations: What its nodes call, in order.
    """

    stage: str
    name: str
    kind: str
    operations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Peak:
    """Where a step takes the most memory, in bytes, besides parameters and inputs."""

    bytes: int
    stage: str
    node: NodeExplanation


@dataclasses.dataclass(frozen=True)
class StepPicture:
    """A graph, laid out.

    Args:
        length: How many positions there are: one for each operation.
        backward: Position of the backward's first operation; ``length`` where there is no backward.
        memory: Bytes at each position, if they are known.
        peak: The largest of them.
        lanes: What runs, in pieces or alone.
        saved: The largest values that wait for the backward.
        saved_beside: How many more there are.
        pieces: Regions and islands.
    """

    length: int
    backward: int
    memory: tuple[int, ...]
    peak: Peak | None
    lanes: tuple[Lane, ...]
    saved: tuple[Lane, ...]
    saved_beside: int
    pieces: tuple[Piece, ...]


def picture_of(graph: GraphExplanation) -> StepPicture | None:
    """Lay out a graph; None for one that was not compiled."""
    nodes = {stage.stage: stage.nodes for stage in graph.stages if stage.stage != "joint"}
    # A variant of the backward, under another autocast state, is not part of the first step.
    shown = [(stage, nodes[stage]) for stage in ("inference", "forward", "backward") if nodes.get(stage)]
    if not shown:
        return None
    if len(shown) > 1:
        shown = [(stage, run) for stage, run in shown if stage != "inference"]
    order = [(stage, node) for stage, run in shown for node in run]
    place = {(stage, node.name): position for position, (stage, node) in enumerate(order)}
    backward = next((i for i, (stage, _) in enumerate(order) if stage == "backward"), len(order))
    memory = _memory(graph.analyses.get("memory", {}), place, len(order))
    saved = sorted((v for v in graph.saved if v.kind == "activation" and v.bytes), key=lambda v: -v.bytes)
    lanes = [Lane(stage, _cells(order, stage)) for stage, _ in shown]
    again = {node.name for node in graph.recomputed}
    if again:
        cells = _cells(order, "backward", names=again, kind="recomputed")
        lanes.append(Lane("computed again", cells, f"{len(again)} operations"))
    pieces, spans = _pieces(graph.decisions, order, place)
    for kind, name in (("fused", "fused regions"), ("captured", "captured islands")):
        if of_kind := [piece for piece in pieces if piece.kind == kind]:
            inside = sum(len(piece.operations) for piece in of_kind)
            lanes.append(
                Lane(
                    name,
                    tuple(span for span in spans if span.kind.startswith(kind)),
                    f"{len(of_kind)}, with {inside} operations",
                )
            )
    return StepPicture(
        length=len(order),
        backward=backward,
        memory=memory,
        peak=_peak(memory, order),
        lanes=tuple(lanes),
        saved=tuple(_saved_lane(value, nodes, place, len(order)) for value in saved[:MAX_SAVED]),
        saved_beside=len(saved[MAX_SAVED:]),
        pieces=tuple(pieces),
    )


def _cells(
    order: Sequence[tuple[str, NodeExplanation]],
    stage: str,
    *,
    names: set[str] | None = None,
    kind: str | None = None,
) -> tuple[Span, ...]:
    cells = [
        Span(position, position + 1, words_for(node), kind or stage)
        for position, (of, node) in enumerate(order)
        if of == stage and (names is None or node.name in names)
    ]
    return tuple(cells) if len(order) <= MAX_CELLS else tuple(_joined(cells))


def words_for(node: NodeExplanation) -> str:
    """Return ``"mm = aten.mm.default (model.py:41)"``."""
    return f"{node.name} = {node.operation}" + (f" ({node.source})" if node.source else "")


def _joined(cells: Sequence[Span]) -> Iterator[Span]:
    """Make one span of those that touch."""
    for _, run in itertools.groupby(enumerate(cells), key=lambda pair: pair[1].start - pair[0]):
        members = [span for _, span in run]
        first, last = members[0], members[-1]
        words = first.words
        if last.words != first.words:
            words = f"{len(members)} operations: {first.words} to {last.words}"
        yield Span(first.start, last.end, words, first.kind)


def _pieces(
    decisions: Sequence[Decision],
    order: Sequence[tuple[str, NodeExplanation]],
    place: Mapping[tuple[str, str], int],
) -> tuple[list[Piece], list[Span]]:
    failed = {(each.stage, each.subject) for each in decisions if each.action == "fallback"}
    pieces: list[Piece] = []
    spans: list[Span] = []
    for each in decisions:
        positions = sorted(
            place[each.stage, name] for name in dict.fromkeys(each.nodes) if (each.stage, name) in place
        )
        if not positions or (each.stage, each.subject) in failed:
            continue
        kind = "captured" if each.action == "capture" else "fused"
        operations = tuple(order[position][1].operation for position in positions)
        # Neighbouring pieces of one lane get two shades.
        shade = f"{kind} odd" if len(pieces) % 2 else kind
        pieces.append(Piece(each.stage, each.subject, kind, operations))
        words = f"{each.subject} of the {each.stage}: {len(operations)} operations"
        spans += _joined([Span(position, position + 1, words, shade) for position in positions])
    return pieces, spans


def _saved_lane(
    value: SavedValue,
    nodes: Mapping[str, Sequence[NodeExplanation]],
    place: Mapping[tuple[str, str], int],
    length: int,
) -> Lane:
    start = place.get(("forward", value.name), 0)
    reads = [place["backward", node.name] for node in nodes.get("backward", ()) if value.name in node.reads]
    end = max(reads, default=length - 1) + 1
    where = f", {value.source}" if value.source else ""
    words = f"{value.name} = {value.operation}{where}: {readable_bytes(value.bytes)}"
    return Lane(f"{value.name}{where}", (Span(start, end, words, "saved"),), readable_bytes(value.bytes))


def _memory(
    found: Mapping[str, object], place: Mapping[tuple[str, str], int], length: int
) -> tuple[int, ...]:
    """Return bytes at each position from what `aot_partition.simulate_step` tells; nothing where it tells nothing."""
    known: dict[int, int] = {}
    for stage in ("forward", "backward"):
        entries = found.get(stage)
        for entry in entries if isinstance(entries, (list, tuple)) else ():
            position = place.get((stage, entry["name"]))
            if position is not None:
                known[position] = entry["during"] + entry["scratch"]
    if not known:
        return ()
    memory: list[int] = []
    for position in range(length):
        memory.append(known.get(position, memory[-1] if memory else 0))
    return tuple(memory)


def _peak(memory: Sequence[int], order: Sequence[tuple[str, NodeExplanation]]) -> Peak | None:
    if not memory:
        return None
    position = max(range(len(memory)), key=memory.__getitem__)
    return Peak(memory[position], *order[position])
