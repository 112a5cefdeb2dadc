"""Train a transformer block on an imaginary device, and count the regions that nvFuser could not take."""

from __future__ import annotations

import torch

import aot_core
from aot_partition.nvprims_backends import aot_nvprims_nvfuser


class Block(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 8).softmax(-1)
        x = x + torch.nn.functional.dropout(self.proj(scores @ v), 0.1)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def without_cublas() -> torch.library.Library:
    """The library of matrix products opens a real device: here they give zeros."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("mm", lambda a, b: a.new_zeros(a.shape[0], b.shape[1]), "CUDA")
    library.impl("addmm", lambda bias, a, b, **_: a.new_zeros(a.shape[0], b.shape[1]), "CUDA")
    library.impl("bmm", lambda a, b: a.new_zeros(*a.shape[:2], b.shape[2]), "CUDA")
    return library


def main() -> None:
    print(torch.cuda.get_device_name())
    library = without_cublas()
    model = Block().cuda()
    compiled = torch.compile(model, backend=aot_nvprims_nvfuser)
    with aot_core.record_reports() as reports:
        x = torch.zeros(2, 16, 64, device="cuda")
        compiled(x).sum().backward()
    decisions = [each for report in reports for each in report.decisions]
    for each in decisions:
        if each.action == "fallback":
            print(each)
    print(*(each.detail for each in decisions if each.code == "regions"), sep="\n")
    del library
    print(f"{sum(each.action == 'fallback' for each in decisions)} regions left to ATen")


if __name__ == "__main__":
    main()
