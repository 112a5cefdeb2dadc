"""Does the installed torch satisfy what a distribution declares in its metadata?"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from aot_registry.problems import Problem

__all__ = ["check_torch", "installed_version"]


def check_torch(requires: Iterable[str], *, distribution: str, torch: str | None) -> Problem | None:
    """Compare what a distribution requires of torch with what is installed.

    A requirement that can't be parsed passes: the installer is the judge of that, not a diagnosis. A
    pre-release of torch counts where its order says so, since what is installed is not a candidate to be
    chosen.

    Args:
        requires: The distribution's requirements, as in its metadata.
        distribution: Its name and version, for the message.
        torch: Version of the installed torch, or None if there is none.

    Returns:
        None if the distribution requires nothing of torch or gets it; else problem ``torch-missing`` or
        ``wrong-torch``.
    """
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) != "torch":
            continue
        # A requirement of an extra does not count.
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        wanted = text.partition(";")[0].strip()
        if torch is None:
            return Problem(
                "torch-missing",
                f"{distribution} requires {wanted}, and torch is not installed",
                f'Install it: pip install "{wanted}".',
            )
        if not requirement.specifier.contains(torch, prereleases=True):
            return Problem(
                "wrong-torch",
                f"{distribution} requires {wanted}, and torch {torch} is installed",
                f'Install the torch that it needs, pip install "{wanted}", or another version of it.',
            )
    return None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution without importing it, or None."""
    try:
        return importlib.metadata.version(distribution) or None
    except Exception:
        return None
