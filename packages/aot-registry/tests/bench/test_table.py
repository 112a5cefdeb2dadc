"""What a comparison looks like, on made-up numbers."""

import dataclasses
import io
import json

import pytest

from aot_registry.bench.measure import Ratio
from aot_registry.bench.result import ContenderResult, WorkloadResult
from aot_registry.bench.table import COLUMNS, cells, print_table, render_plain

EAGER = ContenderResult(
    "eager",
    "trained",
    losses=(2.0, 1.0),
    max_deviation=0.0,
    verdict="follows",
    step_seconds=0.0125,
    step_ratio=Ratio(1.0, 1.0, 1.0),
    peak_bytes=3 * 2**20,
    peak_ratio=1.0,
    compile_seconds=0.0,
    backend_compile_seconds=0.0,
    graphs=0,
    fallbacks=0,
)
FAST = ContenderResult(
    "aot_fast",
    "trained",
    losses=(2.0, 1.25),
    max_deviation=0.25,
    verdict="within spread",
    step_seconds=0.01,
    step_ratio=Ratio(0.8, 0.75, 0.9),
    peak_bytes=2**20,
    peak_ratio=1 / 3,
    compile_seconds=4.44,
    backend_compile_seconds=3.0,
    graphs=2,
    fallbacks=1,
    fallback_reasons=("[safety] fallback aten.lstm [lstm]: can't be traced",),
)
STRANGE = ContenderResult(
    "strange", "trained", losses=(2.0, float("nan")), max_deviation=float("nan"), verdict="differs", graphs=1
)
BROKEN = ContenderResult(
    "broken", "failed", "RuntimeError: no [code] (after 0 steps)", traceback="Traceback ..."
)
ABSENT = ContenderResult("absent", "not usable", "libnv.so is missing. Install it.")


def make(*rows, spread=0.3):
    return WorkloadResult(
        workload="text-gpt",
        device="cpu",
        torch_version="2.13.0",
        threads=1,
        seed=0,
        steps=1,
        rounds=1,
        warm_up=1,
        tolerance=1e-4,
        eager_spread=spread,
        contenders=rows,
    )


def test_plain_table():
    assert render_plain(make(EAGER, FAST, BROKEN, ABSENT)) == (
        "text-gpt: 2 steps (1 to warm up, 1 x 1 timed), seed 0, torch 2.13.0 on cpu, 1 thread\n"
        "\n"
        "                   final              step               peak  compile          fall-\n"
        "backend   usable    loss  deviation   time     spread  memory        s  graphs  backs\n"
        "--------  ------  ------  ---------  -----  ---------  ------  -------  ------  -----\n"
        "eager     yes     1.0000    0.0e+00  1.00x  1.00-1.00   1.00x      0.0       0      0\n"
        "aot_fast  yes     1.2500   2.5e-01~  0.80x  0.75-0.90   0.33x      4.4       2      1\n"
        "broken    failed       -          -      -          -       -        -       -      -\n"
        "absent    no           -          -      -          -       -        -       -      -\n"
        "\n"
        "1x is eager's 12.5 ms a step and 3.0 MiB at its peak. Spread: quartiles over the\n"
        "  rounds.\n"
        "aot_fast: [safety] fallback aten.lstm [lstm]: can't be traced\n"
        "broken: failed: RuntimeError: no [code] (after 0 steps)\n"
        "absent: not usable: libnv.so is missing. Install it.\n"
        "~ Leaves eager's loss curve by more than 1e-04, but about as far as eager itself does\n"
        "  with other dropout masks and rounding (3.0e-01).\n"
    )


def test_a_curve_that_differs_is_marked_and_explained():
    text = render_plain(make(EAGER, STRANGE))
    assert "nan*" in text
    assert "* Leaves eager's loss curve farther than eager itself does" in text
    assert "a gradient may be wrong" in text


def test_small_and_unknown_memory():
    assert "a step and 1.5 KiB at its peak." in render_plain(
        make(dataclasses.replace(EAGER, peak_bytes=1536))
    )
    unknown = dataclasses.replace(EAGER, peak_bytes=None, peak_ratio=None)
    assert "1x is eager's 12.5 ms a step. Spread" in render_plain(make(unknown))


def test_nothing_to_explain():
    assert render_plain(make(EAGER, spread=None)).endswith("Spread: quartiles over the\n  rounds.\n")


@pytest.mark.parametrize("row", [EAGER, FAST, STRANGE, BROKEN, ABSENT], ids=lambda row: row.backend)
def test_a_cell_per_column(row):
    assert len(cells(row)) == len(COLUMNS)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [40, 140])
def test_rich_on_a_terminal(monkeypatch, width):
    pytest.importorskip("rich", reason="the extra [cli] is not installed")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    print_table(make(EAGER, FAST, BROKEN, ABSENT), terminal)
    text = terminal.getvalue()
    for part in ("aot_fast", "2.5e-01~", "0.75-0.90", "1.2500", "no [code]", "[safety] fallback", "libnv.so"):
        assert part in text
    assert "…" not in text
    assert "────" in text


def test_text_without_rich(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich", None)
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    terminal = Terminal()
    print_table(make(EAGER, FAST), terminal)
    assert terminal.getvalue() == render_plain(make(EAGER, FAST))


def test_plain_data_is_json():
    data = make(EAGER, FAST, STRANGE, BROKEN, ABSENT).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {
        "workload",
        "device",
        "torch_version",
        "threads",
        "seed",
        "steps",
        "rounds",
        "warm_up",
        "tolerance",
        "eager_spread",
        "contenders",
    }
    keys = {
        "backend",
        "status",
        "reason",
        "traceback",
        "losses",
        "final_loss",
        "max_deviation",
        "verdict",
        "step_seconds",
        "step_ratio",
        "peak_bytes",
        "peak_ratio",
        "compile_seconds",
        "backend_compile_seconds",
        "graphs",
        "fallbacks",
        "fallback_reasons",
    }
    assert all(set(row) == keys for row in data["contenders"])
    assert data["contenders"][1]["step_ratio"] == {
        "median": 0.8,
        "lower_quartile": 0.75,
        "upper_quartile": 0.9,
    }
    assert data["contenders"][2]["losses"] == [2.0, None]
