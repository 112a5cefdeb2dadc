"""Tables of a page: what a picture shows, for those who can't see it, and what is no picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = ["Table"]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, its first column the heads of the rows.

    Args:
        caption: What it holds.
        headers: One per column.
        rows: Words, escaped by the template.
        numbers: Which columns are aligned to the right, counted from 0.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: tuple[int, ...] = ()
