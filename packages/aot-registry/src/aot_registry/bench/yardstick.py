"""How far apart two right backends may end: eager compared with itself.

Kernels that add up in another order differ by a rounding error, and a backend may draw dropout masks in an
order of its own. Training amplifies both, by as much as the model has it: 1e-7 for a smooth net, 1e-2 where
there are ReLU kinks or dropout. No constant tells such a curve from one with a wrong gradient; a second run of
eager does, whose parameters are shaken by rounding errors and whose steps draw other random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from aot_registry.bench.rng import isolated_rng
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads.workload import Workload

__all__ = ["eager_spread", "max_deviation"]


def eager_spread(workload: Workload, losses: Sequence[float], *, seed: int) -> float:
    """Return the largest deviation of a shaken eager run from the loss curve of another.

    Args:
        workload: What both train.
        losses: Eager's loss curve.
        seed: That with which ``losses`` was made; the shaken run takes another.
    """
    run = TrainingRun(workload, lambda model: model, seed + 1)
    for step in range(len(losses)):
        with isolated_rng(step):
            _shake(run.model)
        run.take_steps(1)
    return max_deviation(run.losses, losses)


def max_deviation(losses: Sequence[float], reference: Sequence[float]) -> float:
    """Return the largest ``|loss - reference|``.

    Two losses that are both NaN, or the same infinity, agree; where one alone is, the deviation is NaN or
    infinite.
    """
    distances = [
        0.0 if mine == its or (math.isnan(mine) and math.isnan(its)) else abs(mine - its)
        for mine, its in zip(losses, reference, strict=True)
    ]
    return math.nan if any(map(math.isnan, distances)) else max(distances)


@torch.no_grad()
def _shake(model: torch.nn.Module) -> None:
    """Multiply each parameter by ``1 ± eps`` of its dtype, at random."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            factor = 1 + (2 * torch.rand_like(parameter) - 1) * 2 * torch.finfo(parameter.dtype).eps
            parameter.mul_(factor)
