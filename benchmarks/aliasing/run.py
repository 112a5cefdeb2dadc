"""Runs programs: eagerly, under a backend with Dynamo in front, or through a backend alone; and judges.

Verdicts: ``right``; ``refused`` (an error of `aot_core.errors`); ``loudly wrong`` (any other exception where
eager had none); ``silently wrong``; ``Dynamo's fault`` (Dynamo with its own backend ``"eager"``, which runs the
captured graph as it is, is wrong in the same way).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import warnings
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch._dynamo

from aliasing.compare import Difference, Observation, differences, observe
from aliasing.generate import draw_program, is_undefined
from aliasing.plan import Plan, plan_for
from aliasing.program import Program, Ref

__all__ = ["VERDICTS", "Case", "Judgement", "case_of", "find_case", "judge", "resolve", "run"]

VERDICTS = ("right", "refused", "loudly wrong", "silently wrong", "Dynamo's fault")

Backend = Callable[..., Any]


@dataclasses.dataclass
class Case:
    """A valid program and what eager makes of it.

    Args:
        index: Its number, which sets its plan.
        plan: What it contains.
        program: The program.
        expected: What eager did, per call.
        rejected: How many programs eager rejected before this one, by reason.
    """

    index: int
    plan: Plan
    program: Program
    expected: list[Observation]
    rejected: Counter[str]


@dataclasses.dataclass
class Judgement:
    """How one backend did on one program. ``error`` is the exception's class and first line."""

    verdict: str
    differences: list[Difference] = dataclasses.field(default_factory=list)
    error: str | None = None


def find_case(seed: int, index: int, attempts: int = 400) -> Case:
    """Return program ``index`` of a seed, drawing until eager accepts one.

    Raises:
        RuntimeError: none was accepted in ``attempts`` draws; the plan can't be fulfilled.
    """
    plan = plan_for(index)
    rejected: Counter[str] = Counter()
    for attempt in range(attempts):
        try:
            program = draw_program(plan, Random(f"{seed}/{index}/{attempt}"))
        except RuntimeError as error:
            # A view that autograd has declared unusable answers no question about itself.
            rejected[_first_line(error)[:100]] += 1
            continue
        case = "nothing fits the plan" if program is None else case_of(index, plan, program, rejected)
        if isinstance(case, Case):
            return case
        rejected[case] += 1
    raise RuntimeError(
        f"program {index} of seed {seed}: no valid one in {attempts} draws; {plan}; {rejected}"
    )


def case_of(index: int, plan: Plan, program: Program, rejected: Counter[str]) -> Case | str:
    """Run a program eagerly. Returns the reason where it is no valid one."""
    try:
        if _is_undefined(program):
            return "writes what it reads in another order"
        return Case(index, plan, program, run(program, program.namespace()["f"]), rejected)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return _first_line(error)[:100]


def _is_undefined(program: Program) -> bool:
    """Whether the result of any call depends on the order in which a write reads its elements."""
    with torch.no_grad() if program.mode != "training" else torch.enable_grad():
        for number in range(len(program.calls)):
            _, _, arguments = program.namespace()[f"call_{number}"]()
            variables = dict(zip(program.names, arguments, strict=True))
            for statement in program.body:
                if statement.writes and is_undefined(statement, variables):
                    return True
                statement.run(variables)
    return False


def run(program: Program, function: Callable[..., Any]) -> list[Observation]:
    """Make all calls of a program on ``function`` and record each; in training, a backward after each."""
    seen: list[Observation] = []
    run_into(seen, program, function)
    return seen


def run_into(seen: list[Observation], program: Program, function: Callable[..., Any]) -> None:
    """Do as `run`, appending to ``seen``, so that an exception in a late call leaves what came before."""
    names = program.namespace()
    inference = program.mode.startswith("inference")
    outside = torch.inference_mode() if program.mode == "inference_tensors" else contextlib.nullcontext()
    around = {"training": contextlib.nullcontext, "no_grad": torch.no_grad}.get(
        program.mode, torch.inference_mode
    )
    for number in range(len(program.calls)):
        with outside:
            roots, bases, arguments = names[f"call_{number}"]()
        named = dict(zip(program.names, arguments, strict=True))
        # Asked before the call: a write may give a history to a root that needed no gradient.
        wanted = [root for root in roots if root.requires_grad]
        # An inference tensor has no version counter.
        versions = {} if inference else {name: argument._version for name, argument in named.items()}
        with around():
            outputs = function(*arguments)
        observation = observe(bases, named, outputs, versions)
        if program.mode == "training":
            # The loss comes from bases and arguments too: they got a history if they were written to.
            total = names["loss"]([*outputs, *arguments, *bases])
            if total.requires_grad:
                gradients = torch.autograd.grad(total, wanted, allow_unused=True)
                observation.gradients = {f"gradient {n}": grad for n, grad in enumerate(gradients)}
        seen.append(observation)


def resolve(name: str) -> Backend:
    """Return a backend by its registered name or as ``"module:attribute"``."""
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    return torch._dynamo.lookup_backend(name)


def judge(case: Case, backend: Backend, *, dynamo: bool = True) -> Judgement:
    """Run a case under a backend and compare with eager.

    Args:
        case: The program.
        backend: Takes a graph and its inputs.
        dynamo: Whether ``torch.compile`` captures the graph; else the backend gets `Program.graph`.
    """
    if not dynamo:
        return _judge(case, _Direct(case.program, backend))
    found = _judge(case, _compiled(case, backend))
    if found.verdict in ("loudly wrong", "silently wrong"):
        control = _judge(case, _compiled(case, "eager"))
        if _explains(control, found):
            found.verdict = "Dynamo's fault"
    return found


def _explains(control: Judgement, found: Judgement) -> bool:
    if control.error or found.error:
        return control.error is not None
    of_control = {(d.call, d.subject, d.aspect) for d in control.differences}
    return {(d.call, d.subject, d.aspect) for d in found.differences} <= of_control


def _compiled(case: Case, backend: Backend | str) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(case.program.namespace()["f"], backend=backend)


class _Direct:
    """Calls a backend's function as Dynamo would: compiled anew only where Dynamo's guards would ask for it.

    Those guards see sizes, strides, dtypes and gradient flags, and neither storages nor offsets.
    """

    def __init__(self, program: Program, backend: Backend) -> None:
        self.program = program
        self.backend = backend
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: torch.Tensor) -> tuple[Any, ...]:
        key = tuple((a.shape, a.stride(), a.dtype, a.requires_grad, a.is_leaf) for a in arguments)
        if key not in self.compiled:
            self.compiled[key] = self.backend(self.program.graph(), list(arguments))
        tensors = dict(zip(self.program.returned, self.compiled[key](*arguments), strict=True))
        return tuple(
            tensors[output] if isinstance(output, Ref) else output for output in self.program.outputs
        )


def _judge(case: Case, function: Callable[..., Any]) -> Judgement:
    seen: list[Observation] = []
    error: Exception | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_into(seen, case.program, function)
    except Exception as raised:
        error = raised
    found = [
        d
        for call, (want, have) in enumerate(zip(case.expected, seen, strict=False))
        for d in differences(call, want, have)
    ]
    text = None if error is None else _first_line(_cause(error))
    if found:
        return Judgement("silently wrong", found, text)
    if error is None:
        return Judgement("right")
    return Judgement("refused" if _is_named(_cause(error)) else "loudly wrong", [], text)


def _cause(error: BaseException) -> BaseException:
    """Return the exception that the backend raised, out of the one that Dynamo wrapped it in."""
    return getattr(error, "inner_exception", error)


def _is_named(error: BaseException) -> bool:
    # Imported here, so that torch's own backends can be judged without this package.
    try:
        from aot_core.errors import AotError
    except ImportError:
        return False
    return isinstance(error, AotError)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
