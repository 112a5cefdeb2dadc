"""NNC, TorchScript's own fuser: can it fuse here, and what is done where it can't."""

from __future__ import annotations

import torch

import aot_core
from aot_core.protocol import Availability
from aot_ts_fusion import _compat
from aot_ts_fusion.errors import UnusableFuserError
from aot_ts_fusion.executors import warn_once

__all__ = ["NNC", "nnc_availability", "tell_whether_nnc_fuses"]

NNC = "fuser1"
"""What ``torch.jit.fuser`` calls it."""


def nnc_availability() -> Availability:
    """Tell whether NNC can fuse here: on a CUDA device, or on a CPU where torch was built with LLVM."""
    found = f"torch {torch.__version__}"
    if torch.cuda.is_available() or _compat.can_fuse_on_cpu():
        return Availability(True, f"{found}; not yet verified on a GPU")
    return Availability(
        False,
        f"{found} sees no CUDA device, and was built without LLVM, which NNC needs on a CPU",
        "Use it on a machine with a CUDA device, or use aot_ts_fusion, which runs everywhere.",
    )


def tell_whether_nnc_fuses(*, strict: bool) -> None:
    """Record, and log once, that the compile under way gets no fusion though it asked for NNC's.

    Raises:
        UnusableFuserError: NNC can't fuse here, and ``strict`` was asked for.
    """
    found = nnc_availability()
    if found.usable:
        return
    obstacle = f"{found.reason}. {found.remedy}"
    if strict:
        raise UnusableFuserError(
            f"Fuser {NNC!r}, which is NNC, can't be used: {obstacle} Without strict the graph would run in plain "
            "TorchScript."
        )
    warn_once(aot_core.record_decision("graph", "skip", "nnc-unusable", obstacle))
