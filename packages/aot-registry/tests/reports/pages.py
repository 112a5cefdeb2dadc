"""Data of pages, written out by hand: with everything that a page can hold, and names that would break it."""

from aot_core import (
    CompileReport,
    Decision,
    Explanation,
    GraphBreak,
    GraphExplanation,
    InputExplanation,
    NodeExplanation,
    OutputExplanation,
    SavedValue,
    StageExplanation,
    Tangent,
    Write,
)
from aot_registry.bench.measure import Ratio
from aot_registry.bench.result import ContenderResult, WorkloadResult

EVIL = "<script>alert('no')</script>\"&"

EAGER = ContenderResult(
    "eager", "trained", losses=(2.0, 1.5, 1.0), max_deviation=0.0, verdict="follows", step_seconds=0.01,
    step_ratio=Ratio(1.0, 1.0, 1.0), peak_bytes=2**20, peak_ratio=1.0, compile_seconds=0.0, graphs=0, fallbacks=0,
)  # fmt: skip
DRIFTS = ContenderResult(
    "drifts", "trained", losses=(2.0, 1.5, 1.25), max_deviation=0.25, verdict="differs", step_seconds=0.005,
    step_ratio=Ratio(0.5, 0.4, 0.8), peak_bytes=2**19, peak_ratio=0.5, compile_seconds=3.0, graphs=1, fallbacks=1,
    fallback_reasons=(f"[safety] fallback {EVIL}",),
)  # fmt: skip
FAILED = ContenderResult(
    "failed", "failed", reason=EVIL, traceback=f"Traceback\n{EVIL}", losses=(2.0, float("nan"))
)
UNUSABLE = ContenderResult("unusable", "not usable", reason="no device")
BENCH = WorkloadResult(
    EVIL, "cpu", "2.13.0", 1, seed=0, steps=1, rounds=1, warm_up=2, tolerance=1e-4, eager_spread=None,
    contenders=(EAGER, DRIFTS, FAILED, UNUSABLE),
)  # fmt: skip

FORWARD = (
    NodeExplanation("a", "aten.mm.default", 2**20, ("x",), "net.py:2"),
    NodeExplanation("b", f"aten.{EVIL}", 2**20, ("a",), "net.py:3"),
)
BACKWARD = (
    NodeExplanation("a", "aten.mm.default", 2**20, ("x",), "net.py:2"),
    NodeExplanation("g", "aten.mul.Tensor", 2**20, ("a", "b")),
)
GRAPH = GraphExplanation(
    "#0 [0/0]",
    "ok",
    "training",
    inputs=(InputExplanation(EVIL, "argument", "float32[4]", writes=(Write("aten.add_", "net.py:4"),)),),
    outputs=(OutputExplanation("b", "fresh", "float32[4]"),),
    tangents=(Tangent("t", "output b", "float32[4]", 16),),
    saved=(
        SavedValue("b", "activation", "float32[4]", 2**20, operation="aten.mul.Tensor", source="net.py:3"),
    ),
    stages=(
        StageExplanation("joint", {"aten.mm.default": 1}, (*FORWARD, *BACKWARD)),
        StageExplanation("forward", {"aten.mm.default": 1}, FORWARD),
        StageExplanation("backward", {"aten.mul.Tensor": 1}, BACKWARD),
    ),
    decisions=(
        Decision("partition", EVIL, "save", "no-room", f"because {EVIL}", "net.py:3"),
        Decision("forward", "region_0", "fuse", "region", nodes=("a", "b")),
        Decision("backward", "island_0", "capture", "island", nodes=("g",), source="elsewhere.py:7"),
    ),
    analyses={
        "memory": {
            "forward": [
                {"name": "a", "during": 10, "scratch": 0},
                {"name": "b", "during": 2**21, "scratch": 0},
            ],
            "backward": [
                {"name": "a", "during": 30, "scratch": 0},
                {"name": "g", "during": 20, "scratch": 5},
            ],
            "forward_peak": 2**21,
            "static_bytes": 100,
        }
    },
)
EXPLANATION = Explanation(
    "Net",
    "aot_x",
    {"budget": EVIL},
    graphs=(GRAPH, GraphExplanation("#1 [1/0]", "failed", "uncompiled", error=EVIL)),
    breaks=(GraphBreak(f"print {EVIL}\n  Hint: don't", "net.py:1"),),
    results=(OutputExplanation("result", "fresh", "float32[4]"),),
)
REPORTS = [
    CompileReport(
        "aot_x",
        "#0 [0/0]",
        stages={"joint": {"operations": 4, "seconds": 0.5, "start": 0.25}},
        compile_seconds=1.0,
        started=1_700_000_000.0,
    )
]
SOURCE = "import torch\na = x @ w\nb = a < 3\nx += 1\n"
