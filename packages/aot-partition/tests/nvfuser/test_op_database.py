"""A sample of the op database, another one at each run; the seed is printed. All of it: benchmarks/nvfuser_opdb.py."""

from __future__ import annotations

import random

import torch
from op_database import CLAIMS, entries, run_sample, samples_of
from presence import HAS_NVFUSER
from regions import reference_executor

from aot_partition.nvfuser.executor import NvFuserExecutor
from aot_partition.nvfuser.testing.engines import PrintedEngine


def executors():
    found = {"reference": reference_executor()}
    if HAS_NVFUSER:
        found["printed"] = NvFuserExecutor(PrintedEngine(), CLAIMS, lambda device, distance: (1, 0))
    return found


def test_a_sample_of_the_op_database(seed):
    draw = random.Random(seed)
    paths, statuses = executors(), []
    for entry in draw.sample(entries(), 60 if HAS_NVFUSER else 30):
        dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.int64, torch.bool])
        for place, sample in enumerate(samples_of(entry, dtype)):
            if place == 4:
                break
            outcome = run_sample(entry, sample, paths)
            assert outcome.faults == {}, (entry.name, dtype, place)
            statuses.append(outcome.status)
    assert "fusion" in statuses


def test_what_is_refused_has_a_reason():
    (entry,) = (each for each in entries() if each.name == "scatter_add")
    outcome = run_sample(
        entry, next(iter(samples_of(entry, torch.float32))), {"reference": reference_executor()}
    )
    assert outcome.status == "refused"
    assert outcome.reasons == ("aten.scatter_add.default: not in the op set",)
