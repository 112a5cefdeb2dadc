"""The trace, by the rules of the Trace Event Format."""

import json

from aot_core import CompileReport, Decision
from aot_registry.reports import chrome_trace

REPORTS = [
    CompileReport(
        "aot_x",
        "#1 [1/0]",
        status="failed",
        error="CompilerError: no",
        stages={"inference": {"operations": 3, "seconds": 0.25, "start": 0.5}},
        compile_seconds=1.0,
        started=1_700_000_010.0,
    ),
    CompileReport(
        "aot_x",
        "#0 [0/0]",
        status="ok",
        stages={
            "joint": {"operations": 8, "seconds": 0.5, "start": 1.0},
            "forward": {"operations": 3, "seconds": 0.25, "start": 1.5},
            "backward": {"operations": 5, "seconds": 0.125, "start": 1.75},
        },
        decisions=[Decision("forward", "mm", "skip", "too-small")],
        compile_seconds=2.0,
        started=1_700_000_000.0,
    ),
]


def check_trace(trace):
    """Check what a viewer needs: kinds, times, and slices of a thread that lie within or beside each other."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["displayTimeUnit"] in ("ms", "ns")
    slices = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["name"], str)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["args"], dict)
        slices.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for found in slices.values():
        for start, end in found:
            for other_start, other_end in found:
                assert (
                    end <= other_start
                    or other_end <= start
                    or (
                        (start <= other_start and other_end <= end)
                        or (other_start <= start and end <= other_end)
                    )
                ), f"{(start, end)} and {(other_start, other_end)} cross"
    return slices


def test_stages_have_start_duration_and_graph():
    trace = chrome_trace(REPORTS)
    check_trace(trace)
    found = {
        (event["args"]["graph"], event["name"]): (event["ts"], event["dur"])
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    }
    assert found == {
        ("#0 [0/0]", "compile"): (0, 2e6),
        ("#0 [0/0]", "joint"): (1e6, 0.5e6),
        ("#0 [0/0]", "forward"): (1.5e6, 0.25e6),
        ("#0 [0/0]", "backward"): (1.75e6, 0.125e6),
        ("#1 [1/0]", "compile"): (10e6, 1e6),
        ("#1 [1/0]", "inference"): (10.5e6, 0.25e6),
    }


def test_graphs_are_threads_with_their_names():
    trace = chrome_trace(REPORTS)
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {1: "graph #0 [0/0]", 2: "graph #1 [1/0]"}
    about = {e["tid"]: e["args"] for e in trace["traceEvents"] if e["name"] == "compile"}
    assert about[1]["decisions"] == ["[forward] skip mm [too-small]"] and "error" not in about[1]
    assert (about[2]["status"], about[2]["error"]) == ("failed", "CompilerError: no")


def test_no_compile_is_an_empty_trace():
    assert [event["ph"] for event in chrome_trace([])["traceEvents"]] == ["M"]
