"""Tables for a terminal: by rich where it is installed (extra ``[cli]``), else as aligned text."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

__all__ = ["format_table", "print_table"]

PIPED_WIDTH = 200
"""Columns assumed where the output is not a terminal, so that a pipe does not get lines folded at 80."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table on standard output. Cells are plain text, never markup; the last column may be folded."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if sys.stdout.isatty() else PIPED_WIDTH
        print(format_table(columns, rows, title=title, width=width))
        return
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    table = Table(title=title or None, title_justify="left", show_edge=False)
    for position, column in enumerate(columns):
        last = position == len(columns) - 1
        table.add_column(column, no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Written by print: rich answers a closed pipe by ending the process with status 1.
    with console.capture() as capture:
        console.print(table)
    print(capture.get(), end="")


def format_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", width: int = PIPED_WIDTH
) -> str:
    """Return a table as aligned text, the last column folded at ``width`` characters."""
    *leading, last = zip(columns, *rows, strict=True)
    widths = [max(map(len, column)) for column in leading]
    indent = sum(widths) + 2 * len(widths)
    room = max(width - indent, 20)
    lines = [title] if title else []
    for *cells, tail in (columns, ["-" * size for size in (*widths, min(max(map(len, last)), room))], *rows):
        padded = "".join(cell.ljust(size + 2) for cell, size in zip(cells, widths, strict=True))
        folded = textwrap.wrap(tail, room, break_on_hyphens=False) or [""]
        lines.append((padded + folded[0]).rstrip())
        lines.extend(" " * indent + line for line in folded[1:])
    return "\n".join(lines)
