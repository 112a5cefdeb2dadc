"""A progress bar on stderr: rich's where it is installed, else a line that rewrites itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol, TextIO

__all__ = ["Progress", "progress_bar"]

LINE_WIDTH = 79
BAR_WIDTH = 24


class Progress(Protocol):
    """What a progress bar can do."""

    def __call__(self, what: str, steps: int, /) -> None:
        """Show what is going on, and count ``steps`` as done."""


@contextlib.contextmanager
def progress_bar(
    title: str, total: int, *, shown: bool | None, file: TextIO | None = None
) -> Iterator[Progress]:
    """Show a bar while the block runs, and remove it afterwards.

    Args:
        title: What is measured.
        total: How many steps make it full.
        shown: Whether to show it; None means only if ``file`` is a terminal.
        file: Where; stderr by default, so that stdout holds the result alone.

    Yields:
        A callable that moves the bar.
    """
    file = file or sys.stderr
    if not (file.isatty() if shown is None else shown):
        yield lambda what, steps: None
        return
    try:
        import rich.console
        import rich.progress
    except ImportError:
        line = _Line(title, total, file)
        try:
            yield line
        finally:
            line.clear()
        return
    console = rich.console.Console(file=file, force_terminal=True)
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.fields[title]}"),
        rich.progress.BarColumn(BAR_WIDTH),
        rich.progress.TaskProgressColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("{task.description}"),
        console=console,
        transient=True,
        refresh_per_second=4,  # drawn by a thread that takes time from the steps being measured
    ) as bar:
        task = bar.add_task("", total=total, title=title)
        yield lambda what, steps: bar.update(task, description=what, advance=steps)


class _Line:
    def __init__(self, title: str, total: int, file: TextIO) -> None:
        self.title, self.total, self.file = title, total, file
        self.done = 0

    def __call__(self, what: str, steps: int, /) -> None:
        self.done += steps
        part = min(1.0, self.done / self.total)
        filled = round(part * BAR_WIDTH)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        text = f"{self.title} [{bar}] {part:4.0%} {what}"
        self.file.write(f"\r{text[:LINE_WIDTH]:<{LINE_WIDTH}}")
        self.file.flush()

    def clear(self) -> None:
        self.file.write("\r" + " " * LINE_WIDTH + "\r")
        self.file.flush()
