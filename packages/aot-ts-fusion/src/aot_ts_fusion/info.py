"""The backends of this package, for listings. Imports without torch."""

from __future__ import annotations

from aot_core import torch_availability
from aot_core.protocol import Availability, BackendInfo

__all__ = ["AOT_TS_FUSION", "AOT_TS_NNC", "AOT_TS_NVFUSER", "AOT_TS_NVFUSER_NODECOMPS", "probe", "probe_nnc"]

AOT_TS_FUSION = BackendInfo(
    name="aot_ts_fusion",
    target="aot_ts_fusion.backends:aot_ts_fusion",
    summary="Graphs run by TorchScript's interpreter, outside Python, with eager kernels",
    tags=("training", "inference", "cpu", "cuda"),
    probe="aot_ts_fusion.info:probe",
    overrides="aot_ts",
)

AOT_TS_NVFUSER = BackendInfo(
    name="aot_ts_nvfuser",
    target="aot_ts_fusion.backends:aot_ts_nvfuser",
    summary="TorchScript with decompositions and min-cut; fusible regions by nvFuser where that is usable",
    tags=("training", "inference", "cpu", "cuda"),
    probe="aot_ts_fusion.info:probe",
)

AOT_TS_NVFUSER_NODECOMPS = BackendInfo(
    name="aot_ts_nvfuser_nodecomps",
    target="aot_ts_fusion.backends:aot_ts_nvfuser_nodecomps",
    summary="aot_ts_nvfuser without decompositions, to judge their effect on accuracy",
    tags=("training", "inference", "cpu", "cuda"),
    probe="aot_ts_fusion.info:probe",
)

AOT_TS_NNC = BackendInfo(
    name="aot_ts_nnc",
    target="aot_ts_fusion.backends:aot_ts_nnc",
    summary="TorchScript with its own fuser NNC; not yet verified on a GPU",
    tags=("training", "inference", "cuda", "experimental"),
    probe="aot_ts_fusion.info:probe_nnc",
)


def probe() -> Availability:
    """Tell whether this torch has what building TorchScript graphs needs."""
    return torch_availability("aot_ts_fusion._compat", remedy="Install torch>=2.10,<2.16.")


def probe_nnc() -> Availability:
    """Tell whether NNC can fuse here."""
    found = probe()
    if not found.usable:
        return found
    # Imported here: a listing imports this module and must not import torch.
    from aot_ts_fusion.nnc import nnc_availability

    return nnc_availability()
