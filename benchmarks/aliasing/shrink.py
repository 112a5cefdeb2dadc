"""Makes a failing program smaller while it goes on failing the same way."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from aliasing.program import Input, Program, Ref, Statement, Step
from aliasing.run import Case, Judgement, case_of

__all__ = ["shrink"]


def shrink(case: Case, judge: Callable[[Case], Judgement]) -> Case:
    """Return the smallest case found by leaving out and simplifying one thing at a time.

    Args:
        case: A case that fails.
        judge: Runs a case. What counts as the same failure: the verdict, and the class of the exception or the
            aspects in which the program differs from eager.
    """
    wanted = _kind(judge(case))
    smaller: Case | None = case
    while smaller is not None:
        case, smaller = smaller, None
        for program in _simpler(case.program):
            candidate = case_of(case.index, case.plan, program, Counter())
            if isinstance(candidate, Case) and _kind(judge(candidate)) == wanted:
                smaller = candidate
                break
    return case


def _kind(judgement: Judgement) -> tuple[object, ...]:
    error = judgement.error and judgement.error.partition(":")[0]
    return judgement.verdict, error, frozenset(_aspect(d.subject, d.aspect) for d in judgement.differences)


def _aspect(subject: str, aspect: str) -> tuple[str, str]:
    return subject.partition(" ")[0], aspect


def _simpler(program: Program) -> Iterator[Program]:
    """Yield programs with one thing less."""
    calls, body, outputs = program.calls, program.body, program.outputs
    if len(calls) > 1:
        for number in range(len(calls)):
            yield dataclasses.replace(program, calls=(*calls[:number], *calls[number + 1 :]))
    for number, statement in enumerate(body):
        rest = (*body[:number], *body[number + 1 :])
        if statement.target not in _used(rest, program):
            yield dataclasses.replace(program, body=rest)
    for number in range(len(outputs)):
        yield dataclasses.replace(program, outputs=(*outputs[:number], *outputs[number + 1 :]))
    yield from _with_fewer_inputs(program)
    for number, statement in enumerate(body):
        if statement.no_grad:
            yield _with_statement(program, number, dataclasses.replace(statement, no_grad=False))
        if statement.step.method in ("sin_", "copy_", "fill_", "mul_", "[]=") and statement.step.args != (
            0.5,
        ):
            yield _with_statement(program, number, dataclasses.replace(statement, step=Step("add_", (0.5,))))
    for kind in ("plain", "leaf"):
        simple = tuple(
            dataclasses.replace(
                call, bases=tuple(dataclasses.replace(base, kind=kind) for base in call.bases)
            )  # type: ignore[arg-type]
            for call in calls
        )
        if simple != calls and not all(base.kind == "plain" for call in calls for base in call.bases):
            yield dataclasses.replace(program, calls=simple)
    if program.mode in ("inference_mode", "inference_tensors"):
        yield dataclasses.replace(program, mode="no_grad")


def _with_statement(program: Program, number: int, statement: Statement) -> Program:
    body = (*program.body[:number], statement, *program.body[number + 1 :])
    return dataclasses.replace(program, body=body)


def _with_fewer_inputs(program: Program) -> Iterator[Program]:
    """Drop the last argument where nothing uses it: names go by position."""
    last = Ref(program.names[-1])
    if len(program.names) > 1 and last not in _used(program.body, program):
        shorter = tuple(dataclasses.replace(call, inputs=call.inputs[:-1]) for call in program.calls)
        yield dataclasses.replace(
            program,
            calls=tuple(
                dataclasses.replace(call, bases=call.bases[: _bases_used(call.inputs)]) for call in shorter
            ),
        )


def _used(body: tuple[Statement, ...], program: Program) -> set[Ref]:
    """Return the variables that some line or the return reads."""
    return {ref for line in body for ref in (line.receiver, *line.operands)} | set(program.returned)


def _bases_used(inputs: tuple[Input, ...]) -> int:
    return max(argument.base for argument in inputs) + 1
