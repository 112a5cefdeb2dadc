"""The options of this package's backends."""

from __future__ import annotations

import dataclasses
from typing import Literal

from aot_core import Settings

__all__ = ["FusionSettings", "NNCSettings", "TorchScriptSettings"]


@dataclasses.dataclass(frozen=True)
class TorchScriptSettings(Settings):
    """Options of ``aot_ts_fusion``.

    Args:
        fuser: One of TorchScript's own fusers, by the name that ``torch.jit.fuser`` gives it. None honours a
            ``torch.jit.fuser(...)`` that is in force when the model is compiled, and is otherwise no fuser.
        strict: Raise where ``"fuser1"``, which is NNC, can't fuse on this machine, rather than run plain TorchScript.
    """

    fuser: Literal["fuser0", "fuser1", "fuser2", "fuser3"] | None = None


@dataclasses.dataclass(frozen=True)
class NNCSettings(TorchScriptSettings):
    """Options of ``aot_ts_nnc``: those of ``aot_ts_fusion``, with NNC as TorchScript's fuser."""

    fuser: Literal["fuser0", "fuser1", "fuser2", "fuser3"] | None = "fuser1"


@dataclasses.dataclass(frozen=True)
class FusionSettings(Settings):
    """Options of ``aot_ts_nvfuser`` and ``aot_ts_nvfuser_nodecomps``.

    Args:
        executor: Who compiles fusible regions: ``"nvfuser"``, or ``"aten"``, which runs them with eager kernels and is
            for telling a wrong region from a wrong kernel.
        strict: Raise where nvFuser can't be used, or fails for a region, rather than run plain TorchScript.
    """

    executor: Literal["nvfuser", "aten"] = "nvfuser"
