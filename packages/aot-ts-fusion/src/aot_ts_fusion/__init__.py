"""Run the graphs of a model in TorchScript, outside Python, on every torch; fuse regions of them by another compiler.

Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core import lazy_names
from aot_ts_fusion.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_ts_fusion.backends import aot_mem_efficient_fusion as aot_mem_efficient_fusion
    from aot_ts_fusion.backends import (
        aot_mem_efficient_fusion_no_decomp as aot_mem_efficient_fusion_no_decomp,
    )
    from aot_ts_fusion.backends import aot_ts_fusion as aot_ts_fusion
    from aot_ts_fusion.backends import aot_ts_nnc as aot_ts_nnc
    from aot_ts_fusion.backends import aot_ts_nvfuser as aot_ts_nvfuser
    from aot_ts_fusion.backends import aot_ts_nvfuser_nodecomps as aot_ts_nvfuser_nodecomps
    from aot_ts_fusion.backends import mem_efficient_fusion_kwargs as mem_efficient_fusion_kwargs
    from aot_ts_fusion.callout import Fusion as Fusion
    from aot_ts_fusion.callout import num_fusions as num_fusions
    from aot_ts_fusion.compile import ts_compile as ts_compile
    from aot_ts_fusion.errors import FusionResultError as FusionResultError
    from aot_ts_fusion.errors import UnknownFuserError as UnknownFuserError
    from aot_ts_fusion.errors import UnknownFusionError as UnknownFusionError
    from aot_ts_fusion.errors import UnusableFuserError as UnusableFuserError
    from aot_ts_fusion.program import Program as Program
    from aot_ts_fusion.regions import call_out_regions as call_out_regions
    from aot_ts_fusion.script_function import ScriptFunction as ScriptFunction
    from aot_ts_fusion.settings import FusionSettings as FusionSettings
    from aot_ts_fusion.settings import NNCSettings as NNCSettings
    from aot_ts_fusion.settings import TorchScriptSettings as TorchScriptSettings

_HOMES = {
    "backends": (
        "aot_mem_efficient_fusion",
        "aot_mem_efficient_fusion_no_decomp",
        "aot_ts_fusion",
        "aot_ts_nnc",
        "aot_ts_nvfuser",
        "aot_ts_nvfuser_nodecomps",
        "mem_efficient_fusion_kwargs",
    ),
    "callout": ("Fusion", "num_fusions"),
    "compile": ("ts_compile",),
    "errors": ("FusionResultError", "UnknownFuserError", "UnknownFusionError", "UnusableFuserError"),
    "program": ("Program",),
    "regions": ("call_out_regions",),
    "script_function": ("ScriptFunction",),
    "settings": ("FusionSettings", "NNCSettings", "TorchScriptSettings"),
}
__all__ = sorted(["__version__", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
