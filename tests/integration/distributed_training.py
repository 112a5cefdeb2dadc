"""What each process of test_distributed.py runs, started by ``torchrun``.

    torchrun --nproc-per-node 2 distributed_training.py ddp results.json aot_core_eager aot_inductor_debug

Trains one small model, in float64, once whole in this process (the reference) and once per backend spread
over all processes. Process 0 writes the losses of every run as JSON, or the error that a backend ended it with.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import aot_core
from installed_backends import UNUSABLE

STEPS = 4
BATCH = 8
WIDTH = 264  # a block has 2.2 MB of gradients, and DDP's first bucket takes 1 MB
SEED = 20


class Block(nn.Module):
    """A residual block, with a norm so that its gradients are not those of a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def build_model() -> nn.Sequential:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Block(), Block(), nn.Linear(WIDTH, 1)).double()


def build_data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(SEED + 1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return [(draw(BATCH, WIDTH), draw(BATCH, 1)) for _ in range(STEPS)]


def train(model: nn.Module, parameters: nn.Module, rank: int, world: int) -> list[float]:
    """Train on this process's share of each batch; return the losses of the whole batches."""
    # Not Adam: it divides by the gradients' size, and a wrong factor in all of them would not show.
    optimizer = torch.optim.SGD(parameters.parameters(), lr=0.05)
    losses = []
    for inputs, targets in build_data():
        loss = nn.functional.mse_loss(model(inputs[rank::world]), targets[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if world > 1:
            dist.all_reduce(total)
        losses.append(total.item() / world)
    return losses


def distribute_ddp(backend: str) -> tuple[nn.Module, nn.Module]:
    """Compile the wrapper: Dynamo cuts the graph where buckets of gradients end."""
    model = DistributedDataParallel(build_model(), bucket_cap_mb=1)
    return torch.compile(model, backend=backend), model


def distribute_fsdp(backend: str) -> tuple[nn.Module, nn.Module]:
    """Shard each block and the root; compile each block, between the hooks that gather and free it."""
    model = build_model()
    for layer in model:
        # Compiled in place, a layer of torch.nn's own is not: Dynamo skips torch's files.
        if isinstance(layer, Block):
            layer.compile(backend=backend)
        fully_shard(layer)
    fully_shard(model)
    return model, model


STRATEGIES: dict[str, Callable[[str], tuple[nn.Module, nn.Module]]] = {
    "ddp": distribute_ddp,
    "fsdp": distribute_fsdp,
}


def main(strategy: str, results: str, *backends: str) -> None:
    dist.init_process_group("gloo")
    try:
        rank, world = dist.get_rank(), dist.get_world_size()
        whole = build_model()
        found: dict[str, dict[str, object]] = {"reference": {"losses": train(whole, whole, 0, 1)}}
        for backend in backends:
            torch.compiler.reset()
            os.environ["AOT_STRICT"] = str(int(backend in UNUSABLE))
            try:
                with aot_core.record_reports() as reports:
                    losses = train(*STRATEGIES[strategy](backend), rank, world)
            except torch._dynamo.exc.BackendCompilerFailed as error:
                # Compiling fails in all processes alike, before any of them waits for another.
                found[backend] = {"error": str(error)}
            else:
                found[backend] = {"losses": losses, "reports": [report.to_dict() for report in reports]}
        if rank == 0:
            Path(results).write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
