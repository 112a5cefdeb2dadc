"""Read a memory budget: bytes, a fraction of the peak without a plan, or text such as ``"6GiB"``."""

from __future__ import annotations

import math
import re

from aot_partition.errors import InvalidBudgetError

__all__ = ["Budget", "format_bytes", "parse_budget", "resolve_budget"]

Budget = int | float | str

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_TEXT = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>[A-Za-z]*|%)\s*")

_FORMS = (
    'a fraction of the peak without a plan, such as 0.5, a number of bytes, or text such as "6GiB" or "40%"'
)


def parse_budget(budget: Budget) -> float | int:
    """Return a budget as a fraction (a float up to 1.0) or as bytes (an int).

    A float is a fraction and an int a number of bytes, except that 0 and 1 are the fractions 0 and 1: nobody
    has one byte to spend.

    Raises:
        InvalidBudgetError: it can't be read, is negative, or is a fraction above 1.
    """
    if isinstance(budget, str):
        return _parse_text(budget)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise InvalidBudgetError(f"budget={budget!r} can't be read: expected {_FORMS}.")
    if math.isnan(budget) or budget < 0:
        raise InvalidBudgetError(f"budget={budget!r} is negative or no number: expected {_FORMS}.")
    if isinstance(budget, int) and budget > 1:
        return budget
    if budget > 1:
        raise InvalidBudgetError(
            f"budget={budget!r} is above the peak without a plan, which is 1.0. Give bytes as an int."
        )
    return float(budget)


def _parse_text(text: str) -> float | int:
    match = _TEXT.fullmatch(text)
    unit = match["unit"].lower() if match else None
    if match and unit == "%":
        return parse_budget(float(match["number"]) / 100)
    if match and unit:
        if unit not in _UNITS:
            units = ", ".join(name.replace("ib", "iB").capitalize() for name in _UNITS if name)
            raise InvalidBudgetError(f"budget={text!r} has no known unit; there are {units} and %.")
        return int(float(match["number"]) * _UNITS[unit])
    if match:
        number = match["number"]
        return parse_budget(float(number) if "." in number else int(number))
    raise InvalidBudgetError(f"budget={text!r} can't be read: expected {_FORMS}.")


def resolve_budget(budget: Budget, unplanned_peak: int) -> int:
    """Return a budget in bytes.

    Args:
        budget: See `parse_budget`.
        unplanned_peak: Peak of the step when everything is saved, in bytes.

    Raises:
        InvalidBudgetError: as `parse_budget`.
    """
    parsed = parse_budget(budget)
    return int(parsed * unplanned_peak) if isinstance(parsed, float) else parsed


def format_bytes(size: float) -> str:
    """Return bytes for people: ``"6.0 GiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
