"""Can a backend work here? Asked in a subprocess, since asking may crash, hang, or change the process.

A probe's process imports what this one would: it gets the same ``sys.path``. It has a time limit; where it
ends without an answer, the place where it crashed or hung is read from the traceback that ``faulthandler``
leaves.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from aot_core.protocol import Availability
from aot_registry.discovery import Declaration
from aot_registry.problems import Problem

__all__ = ["DEFAULT_TIMEOUT", "Outcome", "probe_all", "probe_declaration"]

DEFAULT_TIMEOUT = 120.0
"""Seconds. Importing torch with a cold disk cache takes up to half a minute."""

CONCURRENT_PROBES = 2
"""Each may import torch, which takes half a gigabyte of memory."""

_GRACE = 1.0
_STAGES = {
    "start": "starting its process",
    "metadata": "importing its description",
    "probe": "running its probe",
    "load": "importing it",
}
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a probe has found.

    Args:
        availability: Can the backend be used?
        problems: What is wrong with it; a backend may be usable and have problems.
        overrides: `BackendInfo.overrides`, where the description could be read.
    """

    availability: Availability
    problems: tuple[Problem, ...] = ()
    overrides: str | None = None


def probe_declaration(declaration: Declaration, *, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
    """Describe, probe and load one backend in a process of its own.

    Args:
        declaration: Which one.
        timeout: Seconds after which it counts as hanging.

    Returns:
        The outcome; no failure of the backend raises.
    """
    return _probe(declaration, timeout, set())


def probe_all(
    declarations: Iterable[Declaration],
    *,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[Declaration], None] = lambda _: None,
) -> dict[Declaration, Outcome]:
    """Probe several backends, two at a time.

    Args:
        declarations: Which ones.
        timeout: Seconds for each.
        progress: Called, in the calling thread, after each. What it raises ends all probes.
    """
    running: set[subprocess.Popen[bytes]] = set()
    with concurrent.futures.ThreadPoolExecutor(CONCURRENT_PROBES) as pool:
        futures = {pool.submit(_probe, one, timeout, running): one for one in declarations}
        try:
            for future in concurrent.futures.as_completed(futures):
                progress(futures[future])
        except BaseException:
            # Ctrl-C above all. It does not reach the probes, which have sessions of their own.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                _kill(process)
            raise
        return {declaration: future.result() for future, declaration in futures.items()}


def _probe(declaration: Declaration, timeout: float, running: set[subprocess.Popen[bytes]]) -> Outcome:
    # Files rather than pipes: a grandchild that keeps a pipe open would make reading it wait for ever.
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _program(declaration, timeout)],
            stdin=subprocess.DEVNULL,
            stdout=answers,
            stderr=errors,
            start_new_session=True,
        )
        running.add(process)
        try:
            status: int | None = process.wait(timeout + _GRACE)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            running.discard(process)
            if process.returncode is None:
                _kill(process)
        stage, answer = _read_answers(_contents(answers))
        if answer is not None:
            return Outcome(
                Availability(**answer["availability"]),
                tuple(Problem(**problem) for problem in answer["problems"]),
                answer["overrides"],
            )
        problem = _explain_silence(declaration, stage, status, timeout, _contents(errors))
    return Outcome(Availability(False, problem.reason, problem.remedy), (problem,))


def _program(declaration: Declaration, timeout: float) -> str:
    # Only the built-in module sys is imported before the path is set: the working directory, which `-c` puts
    # first, may hold anything.
    return (
        f"import sys; sys.path[:] = {list(sys.path)!r}; from aot_registry._probe_child import main; "
        f"main({dataclasses.asdict(declaration)!r}, {timeout!r})"
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        # Its own session, so its own group: what it started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _contents(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode("utf-8", errors="replace"))


def _read_answers(text: str) -> tuple[str, dict[str, Any] | None]:
    stage = "start"
    for line in text.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if "answer" in message:
            return stage, message["answer"]
        stage = message["stage"]
    return stage, None


def _explain_silence(
    declaration: Declaration, stage: str, status: int | None, timeout: float, errors: str
) -> Problem:
    doing = _STAGES[stage]
    distribution = declaration.distribution
    place = _place(errors)
    if status is None:
        return Problem(
            "timed-out",
            f"{doing[0].upper()}{doing[1:]} did not end within {timeout:g} s{place}",
            f"If this machine is merely slow, allow more: aot doctor --timeout {timeout * 4:g}. Otherwise "
            f"upgrade {distribution}, or remove it: pip uninstall {distribution}.",
        )
    name = _signal_name(status)
    if name is not None:
        memory = " (often: out of memory)" if name == "SIGKILL" else ""
        return Problem(
            "crashed",
            f"{doing[0].upper()}{doing[1:]} crashed the process with {name}{memory}{place}",
            f"A compiled module of {distribution} may not fit this machine or this torch. Reinstall it, pip "
            f"install --force-reinstall --no-cache-dir {distribution}, or remove it: pip uninstall "
            f"{distribution}.",
        )
    last = errors.strip().splitlines()[-1:] or ["nothing on stderr"]
    return Problem(
        "exited",
        f"{doing[0].upper()}{doing[1:]} ended the process with status {status} ({last[0]})",
        f"Upgrade {distribution}, or remove it: pip uninstall {distribution}.",
    )


def _signal_name(status: int) -> str | None:
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    # Windows reports an unhandled exception as an NTSTATUS of severity "error".
    return f"exception 0x{status:08X}" if status >= 0xC0000000 else None


def _place(errors: str) -> str:
    """Return the innermost frame of faulthandler's traceback, if it can be outside the standard library."""
    # With several threads, the one that crashed comes first; where none has crashed, the main thread comes
    # last.
    marker = "Current thread" if "Current thread" in errors else "Thread "
    dump = errors[errors.rfind(marker) :] if marker in errors else ""
    frames = [frame for frame in _FRAME.finditer(dump) if not frame["file"].startswith("<")]
    library = sysconfig.get_path("stdlib")
    own = [one for one in frames if not one["file"].startswith(library) or "site-packages" in one["file"]]
    for frame in own or frames:
        return f", at {frame['file']}:{frame['line']}"
    return ""
