"""Phase B of the GPU benchmark, with the simulator in place of CUDA: measuring, comparing, going on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

import cudagraphs_speed as phase
from cudagraphs_models import WORKLOADS


def test_a_model_is_run_by_all_ways_and_compared():
    options = argparse.Namespace(dry_run=True, rounds=2)
    row = phase.measure("kv-cache-decode", ["eager", "ours", "ours-pool", "cudagraphs"], options)
    torch._dynamo.reset()
    assert json.loads(json.dumps(row)) == row
    assert row["ways"]["ours"]["checked"] == row["ways"]["ours-pool"]["checked"] == "same bits"
    assert row["ways"]["ours"]["share"] == 1.0
    assert "needs a CUDA device" in row["ways"]["cudagraphs"]["error"]
    assert "captured 100%" in phase._table(row)


def test_a_state_that_was_cut_off_is_gone_on_with(tmp_path):
    state = tmp_path / "b.jsonl"
    state.write_text('{"model": "mlp-training", "ways": {}}\n{"model": "gpt-inf', encoding="utf-8")
    assert [row["model"] for row in phase._read(state)] == ["mlp-training"]


def test_the_summary_tells_captured_from_skipped():
    rows = [
        {
            "model": name,
            "ways": {"ours": {"quartiles": [2, 4.0, 5]}, "cudagraphs": {"quartiles": [1, 1.6, 2]}},
        }
        for name in ("mlp-training", "kv-cache-decode")
    ]
    text = phase._summary(rows)
    assert "geometric mean 4.00" in text
    assert text.count("least 2.50") == 2
    assert WORKLOADS["kv-cache-decode"].skipped and not WORKLOADS["mlp-training"].skipped


def test_results_that_differ_are_told():
    eager = torch.tensor([1.0, 2.0])
    results = {
        "eager": eager,
        "aot_eager": eager,
        "ours": eager + 1e-7,
        "default": eager + 1e-4,
        "bad": eager * 2,
    }
    workload = WORKLOADS["mlp-training"]
    assert phase._compare("aot_eager", results, workload) == "same bits"
    assert phase._compare("default", results, workload) == "close"
    assert phase._compare("bad", results, workload) == "differs"
