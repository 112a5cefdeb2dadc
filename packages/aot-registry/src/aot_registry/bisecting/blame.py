"""From a stage that fails to the graph, the node and the cause.

==================  =====================================================================
stage               how the node is found
==================  =====================================================================
``dynamo``          it is not: there is no graph to halve before the capture
``aot``             ever longer beginnings of the captured graph are handed to the backend
``decompositions``  ever more calls of decompositions are let through
``partition``       the joint graph and its parts are run side by side, and values compared
``backend``         ever longer beginnings of a compiled graph are handed to its compiler
==================  =====================================================================

Each halving runs the whole model, and asks whether it fails as it did.
"""

from __future__ import annotations

from typing import cast

from aot_core import source_line
from aot_registry.bisecting.partition_values import first_wrong_value
from aot_registry.bisecting.prefix import Step, legal_cuts, steps
from aot_registry.bisecting.result import Culprit
from aot_registry.bisecting.search import first_that
from aot_registry.bisecting.stages import Bench, Fault
from aot_registry.bisecting.trial import Limits, Stage, Trial

__all__ = ["blame"]


def blame(bench: Bench, fault: Fault) -> Culprit:
    """Narrow a failing stage down.

    Args:
        bench: Runs the model.
        fault: The stage, with its run.
    """
    if fault.stage == "eager again":
        return Culprit(cause="eager itself gives other results the second time")
    trial, stage = fault.trial, cast(Stage, fault.stage)
    assert trial is not None  # a stage that fails has been run
    if not trial.captured:
        return Culprit(cause="Dynamo captured no graph")
    if stage == "dynamo":
        graphs = len(trial.captured)
        return Culprit(graph=0 if graphs == 1 else None, cause="the capture itself differs from the model")
    number = _first_graph(bench, fault, stage, len(trial.captured))
    if stage == "decompositions":
        found = _blame_decomposition(bench, fault, number)
    elif stage == "partition":
        found = _blame_partition(bench, number)
    elif stage == "backend" and trial.captured[number].reached:
        found = _blame_unit(bench, fault, number)
    else:
        found = _blame_captured(bench, fault, stage, number)
    return found or Culprit(graph=number, cause=f"the graph fails as a whole at stage {stage}")


def _first_graph(bench: Bench, fault: Fault, stage: Stage, captured: int) -> int:
    """Return the number of the first captured graph that fails at a stage, the others running as captured."""
    counts = range(1, captured + 1)
    return first_that(lambda count: bench.shows(fault.failures, stage, Limits(graphs=count)), counts) - 1


def _blame_captured(bench: Bench, fault: Fault, stage: Stage, number: int) -> Culprit | None:
    assert fault.trial is not None
    gm = fault.trial.captured[number].gm
    count = first_that(
        lambda count: bench.shows(fault.failures, stage, Limits(graphs=number + 1, captured_steps=count)),
        legal_cuts(gm),
    )
    return _at_step(steps(gm), count, legal_cuts(gm), graph=number, role="captured", cause="")


def _blame_unit(bench: Bench, fault: Fault, number: int) -> Culprit | None:
    """Find the compiled graph of a captured graph, then the node."""
    trial = _trial_of(bench, fault, "backend", number)
    mine = [index for index, unit in enumerate(trial.units) if unit.graph == number]
    if not mine:
        return None

    def shows(**limits: int) -> bool:
        return bench.shows(fault.failures, "backend", Limits(graphs=number + 1, **limits))

    chosen = first_that(lambda count: shows(units=count), [index + 1 for index in mine])
    unit = trial.units[chosen - 1]
    cuts = legal_cuts(unit.gm)
    count = first_that(lambda count: shows(units=chosen, unit_steps=count), cuts)
    return _at_step(steps(unit.gm), count, cuts, graph=number, role=unit.role, cause="")


def _blame_decomposition(bench: Bench, fault: Fault, number: int) -> Culprit | None:
    stage: Stage = "decompositions"
    trial = _trial_of(bench, fault, stage, number)
    if not trial.calls:
        return None

    def limits(calls: int) -> Limits:
        return Limits(graphs=number + 1, calls=calls)

    count = first_that(
        lambda count: bench.shows(fault.failures, stage, limits(count)), range(1, len(trial.calls) + 1)
    )
    operator = trial.calls[count - 1].operator
    # With one call less, the operator is still a node.
    _, before = bench.try_stage(stage, limits(count - 1))
    node = _node_of_call(before, count - 1)
    return Culprit(
        graph=number,
        role="joint",
        node=None if node is None else node[0],
        operator=str(operator),
        source=None if node is None else node[1],
        cause=f"the decomposition of {operator} is wrong",
        nodes=len(trial.calls),
    )


def _trial_of(bench: Bench, fault: Fault, stage: Stage, number: int) -> Trial:
    """Return a run in which no graph behind a given one is handed to the backend."""
    if fault.trial is not None and len(fault.trial.captured) == number + 1:
        return fault.trial
    return bench.try_stage(stage, Limits(graphs=number + 1))[1]


def _node_of_call(trial: Trial, number: int) -> tuple[str, str | None] | None:
    """Return name and source line of the node that a call of a decomposition left as it was."""
    if number >= len(trial.calls):
        return None
    operator = trial.calls[number].operator
    left = sum(call.declined and call.operator == operator for call in trial.calls[:number])
    graphs = [parts.joint for parts in trial.parts] or [unit.gm for unit in trial.units]
    nodes = [node for gm in graphs for node in gm.graph.nodes if node.target == operator]
    return (nodes[left].name, source_line(nodes[left])) if left < len(nodes) else None


def _blame_partition(bench: Bench, number: int) -> Culprit | None:
    _, trial = bench.try_stage("partition", Limits(graphs=number + 1), keep_values=True)
    for parts in trial.parts:
        if parts.graph == number and (wrong := first_wrong_value(parts)) is not None:
            return Culprit(
                graph=number,
                role=wrong.role,
                node=wrong.node.name,
                operator=_operator_of(wrong.node.target),
                source=source_line(wrong.node),
                cause=wrong.cause,
                nodes=len(steps(parts.joint)),
            )
    return None


def _at_step(
    all_steps: list[Step], count: int, cuts: list[int], *, graph: int, role: str, cause: str
) -> Culprit | None:
    if not all_steps:
        return None
    before = max((cut for cut in cuts if cut < count), default=0)
    node = all_steps[count - 1][0]
    if count - before > 1:
        first = all_steps[before][0]
        cause = (
            f"it or one of the {count - before - 1} before it, from {first.name} on, where no cut is possible"
        )
    return Culprit(
        graph=graph,
        role=role,
        node=node.name,
        operator=_operator_of(node.target),
        source=source_line(node),
        cause=cause,
        nodes=len(all_steps),
    )


def _operator_of(target: object) -> str:
    text = str(target)
    # An operator's text is its name, a function's its address.
    return str(getattr(target, "__name__", text)) if " at 0x" in text else text
