"""Run a fusion that nvFuser can define and not run."""

from __future__ import annotations

import torch

from aot_partition.nvfuser.definition import Recorder
from aot_partition.nvfuser.engine import NvFuser

recorder = Recorder()
x = recorder.define_tensor(shape=(-1,), contiguity=(True,), dtype=torch.float32, is_cpu=False)
recorder.add_output(recorder.ops.reshape(x, (3, 7)))
try:
    NvFuser().build(recorder.finish())([torch.zeros(20, device="cuda")])
except Exception as error:
    print("refused:", str(error)[:200])
else:
    print("ran")
