"""The text of the user's source lines, for those who name a line: ``"model.py:41"``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["SourceText"]


class SourceText:
    """The lines of some files.

    Args:
        files: Those whose lines may be asked for. Of two with one name, neither is quoted.
    """

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._lines: dict[str, list[str]] = {}
        for path in files:
            known = path.name in self._lines
            self._lines[path.name] = [] if known else _read(path)

    def quote(self, source: str | None) -> str | None:
        """Return the text of ``"model.py:41"``; None for a file that is not one of these."""
        name, _, number = (source or "").rpartition(":")
        lines = self._lines.get(name, [])
        if not number.isdecimal() or not 1 <= int(number) <= len(lines):
            return None
        return lines[int(number) - 1].strip() or None


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
