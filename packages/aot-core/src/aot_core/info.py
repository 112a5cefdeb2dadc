"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core.protocol import Availability, BackendInfo

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
    try:
        import torch

        from aot_core import _compat
    except Exception as error:
        return Availability(False, f"{type(error).__name__}: {error}", "Install torch>=2.9,<2.16.")
    missing = _compat.missing_interfaces()
    if missing:
        return Availability(
            False,
            f"torch {torch.__version__} lacks {', '.join(missing)}",
            "Install torch>=2.9,<2.16.",
        )
    return Availability(True, f"torch {torch.__version__}")
