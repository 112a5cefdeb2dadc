"""Spreads programs over worker processes, so that a crash of the interpreter costs one program and not the run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["run_in_chunks"]

Record = dict[str, Any]


class _Worker:
    """A process that works through a chunk of indices and appends one line of JSON for each."""

    def __init__(self, command: Sequence[str], indices: range, path: Path) -> None:
        self.command, self.indices, self.path = command, indices, path
        self.read = 0
        self.ended: int | None = None
        self.seen_at = time.monotonic()
        self.log = path.with_suffix(".log")
        self._start(indices.start)

    def _start(self, first: int) -> None:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*self.command, "--chunk", str(first), str(self.indices.stop), str(self.path)],
                stdout=log,
                stderr=subprocess.STDOUT,
                # One thread each: the tensors are tiny and the workers share the cores.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def new_records(self, hang: float) -> list[Record]:
        """Return what was written since the last call; end the process after ``hang`` seconds without."""
        if self.process.poll() is None and time.monotonic() - self.seen_at > hang:
            self.process.kill()
            self.process.wait()
        # Asked before reading: what a process wrote before it ended is then read for certain.
        self.ended = self.process.poll()
        lines = self.path.read_text().split("\n")[:-1] if self.path.exists() else []
        fresh, self.read = lines[self.read :], len(lines)
        if fresh:
            self.seen_at = time.monotonic()
        return [json.loads(line) for line in fresh]

    @property
    def next_index(self) -> int:
        return self.indices.start + self.read

    @property
    def done(self) -> bool:
        return self.ended is not None and self.next_index == self.indices.stop

    @property
    def dead(self) -> bool:
        """Whether the process ended before its work did."""
        return self.ended is not None and not self.done

    @property
    def last_words(self) -> str:
        tail = self.log.read_text().strip().rpartition("\n")[2][-200:]
        return f"the process ended with status {self.ended}: {tail}"

    def skip(self, record: Record) -> None:
        """Write the record of a program that killed the process, and go on behind it."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.seen_at = time.monotonic()
        self._start(self.next_index + 1)


def run_in_chunks(
    command: Sequence[str],
    indices: range,
    *,
    jobs: int,
    lost: Callable[[int, str], Record],
    chunk: int = 250,
    hang: float = 300.0,
) -> Iterator[Record]:
    """Run programs in worker processes and yield their records as they come.

    Args:
        command: Starts a worker when ``--chunk FIRST STOP FILE`` is appended.
        indices: The programs.
        jobs: How many workers run at once.
        lost: Makes the record of a program whose worker died, of its index and how it died.
        chunk: Programs per worker process.
        hang: Seconds without a record after which a worker counts as dead.
    """
    waiting = [indices[first : first + chunk] for first in range(0, len(indices), chunk)][::-1]
    running: list[_Worker] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    part = waiting.pop()
                    running.append(_Worker(command, part, Path(folder, f"{part.start}.jsonl")))
                time.sleep(0.2)
                for worker in list(running):
                    yield from worker.new_records(hang)
                    if worker.done:
                        running.remove(worker)
                    elif worker.dead:
                        worker.skip(lost(worker.next_index, worker.last_words))
        finally:
            for worker in running:
                worker.process.kill()
