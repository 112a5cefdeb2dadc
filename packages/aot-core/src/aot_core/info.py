"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core.protocol import Availability, BackendInfo
from aot_core.torch_interfaces import torch_availability

__all__ = ["AOT_CORE_EAGER", "AOT_INDUCTOR_DEBUG", "probe"]

AOT_CORE_EAGER = BackendInfo(
    name="aot_core_eager",
    target="aot_core.debug:aot_core_eager",
    summary="AOTAutograd without a compiler: runs the traced graphs with eager kernels",
    tags=("training", "inference", "debug", "cpu", "cuda"),
    probe="aot_core.info:probe",
    overrides="aot_eager",
)

AOT_INDUCTOR_DEBUG = BackendInfo(
    name="aot_inductor_debug",
    target="aot_core.debug:aot_inductor_debug",
    summary="Inductor's decompositions and partitioner without its code generator",
    tags=("training", "inference", "debug", "cpu", "cuda"),
    probe="aot_core.info:probe",
)


def probe() -> Availability:
    """Tell whether this torch has what the wrapper needs."""
    return torch_availability("aot_core._compat", remedy="Install torch>=2.9,<2.16.")
