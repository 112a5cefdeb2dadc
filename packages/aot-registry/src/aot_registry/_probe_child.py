"""What runs in the subprocess of a probe: describe one backend, probe it, load it, and tell.

It writes one JSON object a line: ``{"stage": ...}`` as it enters each stage, so that a crash or a hang can be
placed, and ``{"answer": ...}`` at the end. Whatever the code under probe prints goes to stderr.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from aot_core.protocol import Availability, BackendInfo
from aot_registry.discovery import Declaration
from aot_registry.loading import LoadError, check_info, load_backend, load_info, resolve, target_of
from aot_registry.problems import Problem

__all__ = ["examine", "main"]


def main(declaration: dict[str, Any], timeout: float) -> None:
    """Examine one declaration and write the answer to what was standard output when the process began."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable(file=2)
    faulthandler.dump_traceback_later(timeout, file=2)
    sys.argv[:] = ["aot-probe"]

    def tell(**message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    tell(answer=examine(Declaration(**declaration), lambda stage: tell(stage=stage)))
    # Threads that the backend has started, or destructors that hang, must not hold back an answer given.
    os._exit(0)


def examine(declaration: Declaration, enter: Callable[[str], None]) -> dict[str, Any]:
    """Describe, probe and load a backend.

    Args:
        declaration: Which one.
        enter: Called with the name of each stage: ``"metadata"``, ``"probe"``, ``"load"``.

    Returns:
        ``{"availability": ..., "problems": [...], "overrides": ...}`` as JSON-ready data.
    """
    problems: list[Problem] = []
    enter("metadata")
    info = _describe(declaration, problems)
    available = Availability(True)
    if info is not None and info.probe is not None:
        enter("probe")
        available = _probe(info, declaration, problems)
    if available.usable:
        enter("load")
        try:
            load_backend(declaration, target_of(declaration, info))
        except LoadError as error:
            problems.append(error.problem)
            available = Availability(False, error.problem.reason, error.problem.remedy)
    return {
        "availability": available.to_dict(),
        "problems": [problem.to_dict() for problem in problems],
        "overrides": info.overrides if info is not None else None,
    }


def _describe(declaration: Declaration, problems: list[Problem]) -> BackendInfo | None:
    try:
        info = load_info(declaration)
    except LoadError as error:
        problems.append(error.problem)
        return None
    if info is not None:
        problems.extend(check_info(declaration, info))
        if "torch" in sys.modules:
            problems.append(
                Problem(
                    "metadata-imports-torch",
                    f"Its description, {declaration.info}, imports torch, which makes every listing slow",
                    f"Tell the authors of {declaration.distribution}: its module must import without torch.",
                    severity="info",
                )
            )
    return info


def _probe(info: BackendInfo, declaration: Declaration, problems: list[Problem]) -> Availability:
    assert info.probe is not None
    remedy = f"Upgrade {declaration.distribution}, or report it to its authors."
    try:
        answer = resolve(info.probe, declaration)()
    except LoadError as error:
        problem = error.problem
    except (Exception, SystemExit) as error:
        problem = Problem(
            "probe-raised", f"Its probe {info.probe} raised {type(error).__name__}: {error}", remedy
        )
    else:
        if isinstance(answer, Availability):
            if not answer.usable:
                reason = answer.reason or f"its probe {info.probe} says no without a reason"
                problems.append(Problem("unavailable", reason, answer.remedy, severity="unavailable"))
                return dataclasses.replace(answer, reason=reason)
            return answer
        problem = Problem(
            "probe-invalid",
            f"Its probe {info.probe} returned {type(answer).__name__}, expected an Availability",
            remedy,
        )
    problems.append(problem)
    return Availability(False, problem.reason, problem.remedy)
