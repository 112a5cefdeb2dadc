"""Read a memory budget: bytes, a fraction of the peak without a plan, or text such as ``"6GiB"``."""

from __future__ import annotations

import math
import re

from aot_partition.errors import BudgetTooLargeError, InvalidBudgetError

__all__ = ["Budget", "format_bytes", "parse_budget", "resolve_budget"]

Budget = int | float | str

_UNITS = {
    "B": 1,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_BYTES_IN = {name.lower(): size for name, size in _UNITS.items()}
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
        if unit not in _BYTES_IN:
            raise InvalidBudgetError(
                f"budget={text!r} has no known unit; there are {', '.join(_UNITS)} and %."
            )
        return int(float(match["number"]) * _BYTES_IN[unit])
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
        BudgetTooLargeError: more bytes than the step takes without a plan.
    """
    parsed = parse_budget(budget)
    if isinstance(parsed, float):
        return int(parsed * unplanned_peak)
    if parsed > unplanned_peak:
        raise BudgetTooLargeError(
            f"budget={budget!r} is {parsed} bytes, and the peak of this step without a plan is {unplanned_peak} "
            f"bytes ({format_bytes(unplanned_peak)}): expected at most that. Check the unit; if the step is to "
            "run without a plan, pass 1.0."
        )
    return parsed


def format_bytes(size: float) -> str:
    """Return bytes for people: ``"6.0 GiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
