"""The backends of this package.

==============================  =====================================================================
``aot_ts_fusion``               TorchScript; under torch's own name ``aot_ts`` after ``activate()``
``aot_ts_nvfuser``              decompositions, min-cut, regions by nvFuser, the rest in TorchScript
``aot_ts_nvfuser_nodecomps``    the same without decompositions
``aot_ts_nnc``                  TorchScript with its own fuser NNC
==============================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import aot_core
from aot_partition import min_cut_partition
from aot_ts_fusion.callout import FUSIONS_KEY
from aot_ts_fusion.compile import ts_compile
from aot_ts_fusion.executors import executor_for, warn_once
from aot_ts_fusion.nnc import NNC, tell_whether_nnc_fuses
from aot_ts_fusion.program import Program
from aot_ts_fusion.regions import call_out_regions
from aot_ts_fusion.settings import FusionSettings, NNCSettings, TorchScriptSettings

if TYPE_CHECKING:
    from torch import fx

__all__ = [
    "aot_mem_efficient_fusion",
    "aot_mem_efficient_fusion_no_decomp",
    "aot_ts_fusion",
    "aot_ts_nnc",
    "aot_ts_nvfuser",
    "aot_ts_nvfuser_nodecomps",
    "mem_efficient_fusion_kwargs",
]


def compile_torchscript(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Program:
    """Compile a graph to TorchScript, with the fuser that the options name."""
    settings = cast(TorchScriptSettings, aot_core.current_compilation().settings)
    if settings.fuser == NNC:
        tell_whether_nnc_fuses(strict=settings.strict)
    return ts_compile(gm, example_inputs, fuser=settings.fuser)


def compile_fused(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Program:
    """Compile fusible regions of a graph with nvFuser, and the graph that calls them to TorchScript."""
    compilation = aot_core.current_compilation()
    settings = cast(FusionSettings, compilation.settings)
    executor = executor_for(settings.executor, strict=settings.strict)
    if executor.obstacle is not None:
        decision = aot_core.record_decision("graph", "skip", "nvfuser-unusable", executor.obstacle)
        warn_once(decision)
        return ts_compile(gm, example_inputs)
    called, decisions = call_out_regions(
        gm,
        executor.find_regions(gm),
        executor.compile_region,
        stage=compilation.stage,
        strict=settings.strict,
    )
    for decision in decisions:
        compilation.decide(decision)
    fused = sum(decision.action == "fuse" for decision in decisions)
    aot_core.record_decision(
        "graph", "fuse", "executor", f"{settings.executor} compiled {fused} of {len(decisions)} regions"
    )
    program = ts_compile(called, example_inputs)
    # From here on the program keeps them. A graph module is in a cycle, and waits for the garbage collector.
    del called.meta[FUSIONS_KEY]
    return program


def _default_decompositions() -> dict[Any, Callable[..., Any]]:
    # Importing it takes a moment, and defines operators.
    from functorch.compile import default_decompositions  # type: ignore[import-untyped]

    return dict(default_decompositions)


def mem_efficient_fusion_kwargs(use_decomps: bool) -> dict[str, Any]:
    """Return what makes `aot_core.aot_autograd` a backend that fuses with little memory between forward and backward.

    ::

        aot_core.aot_autograd(name="mine", **mem_efficient_fusion_kwargs(use_decomps=True))

    Args:
        use_decomps: Take compound operators apart, by ``functorch.compile.default_decompositions``, so that more of
            them can be fused and recomputed. It may change results by a rounding.
    """
    kwargs: dict[str, Any] = {
        "fw_compiler": compile_fused,
        "partition_fn": min_cut_partition,
        "settings": FusionSettings,
        "keep_inference_input_mutations": True,
    }
    if use_decomps:
        kwargs["decompositions"] = _default_decompositions
    return kwargs


aot_ts_fusion = aot_core.aot_autograd(
    name="aot_ts_fusion",
    fw_compiler=compile_torchscript,
    settings=TorchScriptSettings,
    tags=("training", "inference", "cpu", "cuda"),
    keep_inference_input_mutations=True,
)

aot_ts_nvfuser = aot_core.aot_autograd(
    name="aot_ts_nvfuser",
    tags=("training", "inference", "cpu", "cuda"),
    **mem_efficient_fusion_kwargs(use_decomps=True),
)

aot_ts_nvfuser_nodecomps = aot_core.aot_autograd(
    name="aot_ts_nvfuser_nodecomps",
    tags=("training", "inference", "cpu", "cuda"),
    **mem_efficient_fusion_kwargs(use_decomps=False),
)

aot_ts_nnc = aot_core.aot_autograd(
    name="aot_ts_nnc",
    fw_compiler=compile_torchscript,
    settings=NNCSettings,
    tags=("training", "inference", "cuda", "experimental"),
    keep_inference_input_mutations=True,
)

aot_mem_efficient_fusion = aot_core.aot_autograd(
    name="aot_mem_efficient_fusion",
    tags=("training", "inference", "debug", "cpu", "cuda"),
    **mem_efficient_fusion_kwargs(use_decomps=True),
)

aot_mem_efficient_fusion_no_decomp = aot_core.aot_autograd(
    name="aot_mem_efficient_fusion_no_decomp",
    tags=("training", "inference", "debug", "cpu", "cuda"),
    **mem_efficient_fusion_kwargs(use_decomps=False),
)
