"""``digits-conv``: a small batch-norm conv net on 1,797 real images of handwritten digits.

The images (8 by 8 pixels, 16 grey levels) are the test part of UCI's "Optical Recognition of Handwritten
Digits", which scikit-learn ships within its wheel; nothing is downloaded.
"""

from __future__ import annotations

import torch
from torch import nn

from aot_registry.bench.errors import MissingWorkloadDataError
from aot_registry.bench.workloads.workload import Workload

__all__ = ["DigitsNet", "build"]

BATCH_SIZE = 64


class DigitsNet(nn.Module):
    """Images ``[B, 1, 8, 8]`` float32 to logits ``[B, 10]``.

    Its activation is smooth. With ReLU, rounding differences of 1e-7 between two backends grow a
    hundred-thousandfold in 70 steps, at the kinks, and hide a wrong gradient; with SiLU they stay.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_block(1, 32, stride=1),
            *_block(32, 64, stride=2),
            *_block(64, 64, stride=1),
        )
        self.classifier = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits ``[B, 10]`` for images ``[B, 1, 8, 8]``."""
        logits: torch.Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits


def _block(in_channels: int, out_channels: int, *, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(out_channels), nn.SiLU()]


def build(seed: int) -> Workload:
    """Build the workload.

    Batches are 28 pairs of images ``[64, 1, 8, 8]`` float32 in [0, 1] and labels ``[64]`` int64, shuffled
    by ``seed``; the five images left over are dropped, so that every step has the same shapes.

    Raises:
        MissingWorkloadDataError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingWorkloadDataError(
            f"Workload 'digits-conv' trains on scikit-learn's digit images, and importing scikit-learn failed "
            f"({error}). Run pip install 'aot-registry[bench]'."
        ) from error
    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).div(16).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    full = len(labels) // BATCH_SIZE * BATCH_SIZE
    return Workload(
        name="digits-conv",
        model=DigitsNet(),
        batches=[(images[rows], labels[rows]) for rows in order[:full].split(BATCH_SIZE)],  # type: ignore[no-untyped-call]
        loss_fn=nn.functional.cross_entropy,
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    )
