"""The backend of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core import torch_availability
from aot_core.protocol import Availability, BackendInfo

__all__ = ["AOT_CUDAGRAPHS", "probe"]

AOT_CUDAGRAPHS = BackendInfo(
    name="aot_cudagraphs",
    target="aot_cudagraphs.backends:aot_cudagraphs",
    summary="Eager's own kernels, captured in CUDA graphs and replayed; runs as it is on a CPU",
    tags=("training", "inference", "cuda", "cpu"),
    probe="aot_cudagraphs.info:probe",
)


def probe() -> Availability:
    """Tell whether graphs can be captured here, on a device or simulated."""
    found = torch_availability("aot_cudagraphs._compat", remedy="Install torch>=2.10,<2.16.")
    if not found.usable:
        return found
    import torch

    if not torch.cuda.is_available():
        return Availability(True, f"{found.reason} sees no CUDA device: graphs run as they are, or simulated")
    return Availability(True, f"{found.reason}, {torch.cuda.get_device_name()}")
