"""Examine every installed backend, and put together what metadata, conflicts and probes say of each::

discover ──> Package ──(find_package_problems)──┐
        └──> Declaration ──(find_conflicts)─────┼──> Diagnosis ──> Examination
                        └──(probe_all)──────────┘
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from typing import Any, Literal

from aot_registry import _compat
from aot_registry.conflicts import find_conflicts, find_override_conflicts, find_package_problems
from aot_registry.discovery import Declaration, discover
from aot_registry.probing import DEFAULT_TIMEOUT, Outcome, probe_all
from aot_registry.problems import Problem
from aot_registry.requirements import installed_version

__all__ = ["Diagnosis", "Examination", "Status", "examine_backends"]

Status = Literal["usable", "unavailable", "broken"]
"""``usable``: can compile and run here. ``unavailable``: in order, but not for this machine, says its probe.
``broken``: something is wrong that a remedy would mend."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What was found about one backend of one distribution.

    Args:
        backend: Name of the backend.
        distribution: Name of the distribution that declares it.
        version: Its version.
        found: What the probe said of a usable backend; may be empty.
        problems: All problems, the gravest first.
    """

    backend: str
    distribution: str
    version: str
    found: str
    problems: tuple[Problem, ...]

    @property
    def status(self) -> Status:
        """What the problems amount to."""
        severities = {problem.severity for problem in self.problems}
        if "error" in severities:
            return "broken"
        return "unavailable" if "unavailable" in severities else "usable"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {
            "backend": self.backend,
            "distribution": self.distribution,
            "version": self.version,
            "status": self.status,
            "found": self.found,
            "problems": [problem.to_dict() for problem in self.problems],
        }


@dataclasses.dataclass(frozen=True)
class Examination:
    """What was found on this machine.

    Args:
        torch: Version of the installed torch, or None.
        python: Version of Python.
        diagnoses: One for each backend of each distribution, by name.
        problems: Distributions whose metadata can't be read, so that nobody knows what they declare.
    """

    torch: str | None
    python: str
    diagnoses: tuple[Diagnosis, ...]
    problems: tuple[Problem, ...]

    @property
    def broken(self) -> bool:
        """True if a backend is broken, or a distribution can't be read."""
        return bool(self.problems) or any(one.status == "broken" for one in self.diagnoses)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {
            "torch": self.torch,
            "python": self.python,
            "broken": self.broken,
            "backends": [one.to_dict() for one in self.diagnoses],
            "problems": [problem.to_dict() for problem in self.problems],
        }


def examine_backends(
    *,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[int, int, Declaration], None] = lambda done, total, declaration: None,
) -> Examination:
    """Probe every backend that is installed, and compare all with each other and with torch.

    Args:
        timeout: Seconds for the probe of one backend.
        progress: Called after each probe with the number done, the number of all, and whose it was.
    """
    packages = discover(check_files=True)
    torch = installed_version("torch")
    declarations = [declaration for package in packages for declaration in package.declarations]
    done = 0

    def count(declaration: Declaration) -> None:
        nonlocal done
        done += 1
        progress(done, len(declarations), declaration)

    conflicts = find_conflicts(packages, _compat.names_of_torch())
    outcomes = probe_all(declarations, timeout=timeout, progress=count)
    overrides = {one: outcome.overrides for one, outcome in outcomes.items() if outcome.overrides is not None}
    override_conflicts = find_override_conflicts(overrides)
    diagnoses = []
    for package in packages:
        shared = find_package_problems(package, torch)
        for declaration in package.declarations:
            problems = [*conflicts.get(declaration, []), *shared, *outcomes[declaration].problems]
            if declaration in override_conflicts:
                problems.append(override_conflicts[declaration])
            diagnoses.append(_diagnose(declaration, problems, outcomes[declaration]))
    return Examination(
        torch,
        platform.python_version(),
        tuple(sorted(diagnoses, key=lambda one: (one.backend, one.distribution))),
        tuple(problem for package in packages if not package.declarations for problem in package.problems),
    )


def _diagnose(declaration: Declaration, problems: list[Problem], outcome: Outcome) -> Diagnosis:
    unique: dict[str, Problem] = {}
    for problem in problems:
        # One cause seen twice, as when RECORD and the import both miss a module, is one problem.
        unique.setdefault(problem.code, problem)
    rank = {"error": 0, "unavailable": 1, "info": 2}
    ordered = sorted(unique.values(), key=lambda problem: rank[problem.severity])
    return Diagnosis(
        declaration.name,
        declaration.distribution,
        declaration.version,
        outcome.availability.reason if outcome.availability.usable else "",
        tuple(ordered),
    )
