"""What can be wrong with an installed backend, as plain data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

__all__ = ["Problem", "Severity"]

Severity = Literal["error", "unavailable", "info"]
"""``error``: something is broken. ``unavailable``: in order, but can't work on this machine, says its own
probe. ``info``: worth knowing, nothing to mend."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One finding, with its cause and what to do about it.

    Args:
        code: A stable kebab-case identifier of the cause, for machines.
        reason: What was found, in one sentence.
        remedy: What to type or change.
        severity: See `Severity`.
    """

    code: str
    reason: str
    remedy: str = ""
    severity: Severity = "error"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return dataclasses.asdict(self)
