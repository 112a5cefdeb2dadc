"""What can go wrong with the process of a probe itself; `test_doctor` has what can go wrong inside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_site import GOOD_BACKEND, FakeSite

from aot_registry.discovery import Declaration, declarations
from aot_registry.probing import Outcome, probe_all, probe_declaration
from aot_registry.problems import Problem


def probe_module(site: FakeSite, source: str, *, timeout: float = 60.0) -> Outcome:
    site.install("fake", torch={"fake": "fake_module:backend"}, modules={"fake_module.py": source})
    return probe_declaration(declarations()["fake"], timeout=timeout)


def test_floods_of_output_do_not_block(site: FakeSite) -> None:
    source = "import sys\nfor stream in (sys.stdout, sys.stderr):\n    stream.write('x' * 1_000_000)\n"
    assert probe_module(site, source + GOOD_BACKEND).availability.usable


def test_closed_standard_streams(site: FakeSite) -> None:
    assert probe_module(
        site, f"import sys\nsys.stdout.close()\nsys.stdin.read()\n{GOOD_BACKEND}"
    ).availability.usable


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_what_a_hanging_probe_started_ends_with_it(site: FakeSite) -> None:
    mark = site.folder / "child.pid"
    source = (
        "import subprocess, sys, threading\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "threading.Event().wait()\n"
    )
    outcome = probe_module(site, source, timeout=6.0)
    assert [problem.code for problem in outcome.problems] == ["timed-out"]
    child = int(mark.read_text())
    # The kernel ends a killed process in its own time.
    for _ in range(300):
        if not is_running(child):
            break
        time.sleep(0.1)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # Killed and not yet reaped by its new parent counts as ended, where that can be seen.
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_thread_left_running_does_not_hold_back_the_answer(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        pytest.fail("the process of the probe waits for the thread")

    monkeypatch.setattr("aot_registry.probing._kill", kill)
    source = f"import threading\nthreading.Thread(target=threading.Event().wait).start()\n{GOOD_BACKEND}"
    assert probe_module(site, source, timeout=20.0).availability.usable


def test_stage_of_a_crash_is_told(site: FakeSite) -> None:
    site.install(
        "fake",
        torch={"fake": "fake_module:backend"},
        aot={"fake": "fake_info:INFO"},
        modules={
            "fake_module.py": GOOD_BACKEND,
            "fake_info.py": "import os\nfrom aot_core.protocol import BackendInfo\n"
            "INFO = BackendInfo('fake', 'fake_module:backend', '', probe='fake_info:probe')\n"
            "def probe():\n    os.abort()\n",
        },
    )
    (problem,) = probe_declaration(declarations()["fake"]).problems
    assert problem.code == "crashed"
    assert problem.reason.startswith("Running its probe crashed the process with SIGABRT, at ")
    assert problem.reason.endswith("fake_info.py:5")


def test_working_directory_does_not_shadow_the_standard_library(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "enum", "aot_registry"):
        (site.folder.parent / f"{name}.py").write_text("raise SystemExit('wrong module')")
    monkeypatch.chdir(site.folder.parent)
    assert probe_module(site, GOOD_BACKEND).availability.usable


def test_same_path_as_here(site: FakeSite) -> None:
    source = f"import sys\nassert sys.path == {sys.path!r}\n{GOOD_BACKEND}"
    assert probe_module(site, source).problems == ()


def test_probe_all_reports_progress(site: FakeSite) -> None:
    for name in ("one", "two", "three"):
        site.install_good(name, name)
    seen: list[str] = []
    outcomes = probe_all(declarations().values(), progress=lambda declaration: seen.append(declaration.name))
    assert sorted(seen) == ["one", "three", "two"]
    assert all(outcome.availability.usable for outcome in outcomes.values())


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_interrupting_ends_the_probes_under_way(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install(
        "hanging",
        torch={"hanging": "hanging:backend"},
        modules={"hanging.py": "import threading\nthreading.Event().wait()"},
    )
    for name in ("one", "two", "three"):
        site.install_good(name, name)
    statuses: list[int | None] = []

    def record(declaration: Declaration, stage: str, status: int | None, *_: object) -> Problem:
        statuses.append(status)
        return Problem("any", "any")

    def interrupt(declaration: Declaration) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aot_registry.probing._explain_silence", record)
    # The hanging one first, so that it is under way when the first answer comes.
    ordered = sorted(declarations().values(), key=lambda declaration: declaration.name != "hanging")
    with pytest.raises(KeyboardInterrupt):
        probe_all(ordered, timeout=20.0, progress=interrupt)
    # Killed, and not left to its time limit, which would be None.
    assert statuses[-1] == -signal.SIGKILL
    assert None not in statuses
