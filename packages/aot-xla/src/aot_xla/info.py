"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core.protocol import Availability, BackendInfo
from aot_xla.versions import INSTALL_PAIR, require_fitting_pair

__all__ = [
    "AOT_TORCHXLA_TRACE_ONCE",
    "AOT_TORCHXLA_TRIVIAL",
    "TORCHXLA_TRACE_ONCE",
    "TORCHXLA_TRIVIAL",
    "probe",
]

AOT_TORCHXLA_TRACE_ONCE = BackendInfo(
    name="aot_torchxla_trace_once",
    target="aot_xla.backends:aot_torchxla_trace_once",
    summary="Traces each graph once per shape and runs the compiled XLA computation from then on",
    tags=("training", "inference", "xla"),
    probe="aot_xla.info:probe",
)

AOT_TORCHXLA_TRIVIAL = BackendInfo(
    name="aot_torchxla_trivial",
    target="aot_xla.backends:aot_torchxla_trivial",
    summary="Notes each graph's operations anew at every call and runs them as one XLA computation",
    tags=("training", "inference", "xla"),
    probe="aot_xla.info:probe",
)

TORCHXLA_TRACE_ONCE = BackendInfo(
    name="torchxla_trace_once",
    target="aot_xla.backends:torchxla_trace_once",
    summary="aot_torchxla_trace_once for inference: a backward raises",
    tags=("inference", "xla"),
    probe="aot_xla.info:probe",
)

TORCHXLA_TRIVIAL = BackendInfo(
    name="torchxla_trivial",
    target="aot_xla.backends:torchxla_trivial",
    summary="aot_torchxla_trivial for inference: a backward raises",
    tags=("inference", "xla"),
    probe="aot_xla.info:probe",
)


def probe() -> Availability:
    """Tell whether torch_xla is there, fits torch, and computes.

    Versions are compared before torch_xla is imported, and torch is not imported at all where they don't fit.
    """
    try:
        pair = require_fitting_pair()
    except ImportError as error:
        return Availability(False, str(error), f"{INSTALL_PAIR}.")
    import torch

    from aot_xla import _compat
    from aot_xla.errors import UnusableXlaError

    try:
        device = _compat.open_device()
        (one,) = device.upload([torch.ones(2)])
        (two,) = device.download([one + one])
    except UnusableXlaError as error:
        return Availability(False, str(error), "See PJRT_DEVICE in the documentation of torch_xla.")
    if two.tolist() != [2.0, 2.0]:
        return Availability(False, f"1 + 1 on {device.torch_device} gave {two.tolist()}")
    return Availability(True, f"{pair}, device {device.kind}")
