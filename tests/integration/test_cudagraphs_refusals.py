"""Phase A of the GPU benchmark, with the simulator in place of CUDA: driving, resuming, counting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "cudagraphs.py"
sys.path.insert(0, str(SCRIPT.parent))

import cudagraphs_refusals as phase  # noqa: E402


def run(state, only):
    command = [
        sys.executable,
        str(SCRIPT),
        "--phase",
        "A",
        "--dry-run",
        "--state",
        str(state),
        "--workers",
        "1",
    ]
    done = subprocess.run(
        [*command, "--only", only], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_are_kept_and_not_made_twice(tmp_path):
    state = tmp_path / "a.jsonl"
    first = run(state, "sin,nonzero,masked_fill")
    # Cut off, as by a process that was ended while it wrote.
    with open(state, "a", encoding="utf-8") as file:
        file.write('{"entry": "cos')
    rows = list(phase.read_rows(state))
    assert {row["entry"] for row in rows} == {
        "sin (call)",
        "sin (in-place)",
        "nonzero (call)",
        "masked_fill (call)",
        "masked_fill (in-place)",
    }
    assert "agreement 100.00 %" in first
    second = run(state, "sin,nonzero,masked_fill")
    assert "5 entries known" in second and "0 to do" in second
    assert list(phase.read_rows(state)) == rows


def test_the_matrix_counts_each_side(tmp_path, capsys):
    def row(device, table, simulator):
        return {
            "entry": "e (call)",
            "sample": 0,
            "device": device,
            "detail": "why",
            "table": table,
            "table_op": "aten.e",
            "simulator": simulator,
        }

    rows = [
        row("exact", "", "exact"),
        row("refused", "", "refused"),
        row("exact", "host-read", "exact"),
        row("refused", "host-read", "exact"),
        row("mismatch", "", "exact"),
        row("not-run", "failed", "not-run"),
        {"entry": "f (call)", "sample": 0, "device": "crash", "detail": "gone"},
    ]
    phase.show(rows, 1.0, details=True)
    text = capsys.readouterr().out
    assert "2 entries, 7 samples" in text
    assert (
        "the table: agreement 60.00 %; accepts what CUDA refuses: 1; refuses what CUDA accepts: 1; "
        "both accept 2, both refuse 1"
    ) in text
    assert (
        "the simulator: agreement 80.00 %; accepts what CUDA refuses: 1; refuses what CUDA accepts: 0" in text
    )
    assert "table accepts, CUDA refuses: e (call): why (1 samples)" in text
    assert "table refuses, CUDA accepts: aten.e [host-read] (1 samples)" in text
    assert "ended the process: f (call): gone" in text
    assert "captured, but another result at replay: e (call): why" in text


def test_an_entry_that_ends_its_process_is_noted_and_passed(tmp_path, monkeypatch):
    state = tmp_path / "a.jsonl"
    calls = []

    def fake(command, **kwargs):
        names = command[command.index("--run-entries") + 1].split(",")
        calls.append(names)
        good = names[: names.index("bad")] if "bad" in names else names
        phase.write_rows(state, [{"entry": name, "sample": 0, "device": "exact"} for name in good])
        return subprocess.CompletedProcess(command, int("bad" in names), "", "device-side assert")

    monkeypatch.setattr(phase.subprocess, "run", fake)
    options = phase.argparse.Namespace(state=state, samples=8, dry_run=False)
    phase.run_process(["one", "bad", "two"], options, 10)
    assert calls == [["one", "bad", "two"], ["two"]]
    found = {row["entry"]: row["device"] for row in map(json.loads, state.read_text().splitlines())}
    assert found == {"one": "exact", "bad": "crash", "two": "exact"}


def test_a_process_that_is_worn_out_is_replaced(tmp_path, monkeypatch):
    state = tmp_path / "a.jsonl"
    calls = []

    def fake(command, **kwargs):
        names = command[command.index("--run-entries") + 1].split(",")
        calls.append(names)
        phase.write_rows(state, [{"entry": names[0], "sample": 0, "device": "refused"}])
        return subprocess.CompletedProcess(command, phase.WORN_OUT if len(names) > 1 else 0, "", "")

    monkeypatch.setattr(phase.subprocess, "run", fake)
    options = phase.argparse.Namespace(state=state, samples=8, dry_run=False)
    phase.run_process(["one", "two", "three"], options, 10)
    assert calls == [["one", "two", "three"], ["two", "three"], ["three"]]
    assert {row["device"] for row in phase.read_rows(state)} == {"refused"}


def test_samples_are_taken_from_beginning_to_end():
    assert phase.spread(list("abcdefg"), 3) == [(0, "a"), (3, "d"), (6, "g")]
    assert phase.spread(list("ab"), 3) == [(0, "a"), (1, "b")]
    assert len(phase.spread(list("abcdefg"), 0)) == 7
