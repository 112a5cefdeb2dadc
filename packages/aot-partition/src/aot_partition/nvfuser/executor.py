"""The executor ``nvfuser``: regions become kernels that nvFuser generates.

What it is asked to compile it has claimed, by the rules in `aot_partition.nvfuser.rules`. Where nvFuser refuses a
region nevertheless, the exception goes to whoever asked, who runs the region by ATen and records why.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aot_core.protocol import Availability
from aot_partition.nvfuser.claims import ClaimRules, refusal
from aot_partition.nvfuser.engine import Engine, FusionCache, NvFuser
from aot_partition.nvfuser.region import CompiledRegion, DrawSeed, compile_region
from aot_partition.nvfuser.wheels import find_obstacle, has_toolkit

__all__ = ["EXECUTOR", "NvFuserExecutor"]


def seed_from_generator(device: torch.device, distance: int) -> tuple[int, int]:
    """Return where a CUDA device's default generator stands, and move it on."""
    generator = torch.cuda.default_generators[device.index or 0]
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + distance)
    return seed, offset


def _computes_bfloat16() -> bool:
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (8, 0)


class NvFuserExecutor:
    """Runs regions with nvFuser.

    Args:
        engine: What builds fusions; by default nvFuser itself.
        claims: Where it may be used; by default on CUDA, as the device and the machine allow.
        draw_seed: Where random numbers come from; by default the default generator of a CUDA device.

    Attributes:
        cache: The fusions built so far.
    """

    name = "nvfuser"

    def __init__(
        self,
        engine: Engine | None = None,
        claims: ClaimRules | None = None,
        draw_seed: DrawSeed = seed_from_generator,
    ) -> None:
        self._given_claims = claims
        self._draw_seed = draw_seed
        self._is_nvfuser = engine is None
        self.device_types: tuple[str, ...] | None = (claims or ClaimRules()).devices
        self.cache = FusionCache(engine or NvFuser())

    @functools.cached_property
    def _claims(self) -> ClaimRules:
        if self._given_claims is not None:
            return self._given_claims
        return ClaimRules(toolkit=has_toolkit(torch.version.cuda), bfloat16=_computes_bfloat16())

    def availability(self) -> Availability:
        """Tell whether nvFuser is installed, fits this torch, and has a device."""
        if not self._is_nvfuser:
            return Availability(True, "fusions are built by an engine of the caller's")
        return find_obstacle()

    def refuse(self, node: fx.Node) -> str | None:
        """Say why there is no rule for a node, or why its rule does not take it."""
        return refusal(node, self._claims)

    def compile_region(self, subgraph: fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledRegion:
        """Build a region's fusion; kernels are generated at its first call.

        Raises:
            Exception: any that a rule or nvFuser raises.
        """
        return compile_region(subgraph, self.cache, self._draw_seed)

    def __repr__(self) -> str:
        return "<executor nvfuser>"


EXECUTOR = NvFuserExecutor()
"""The executor that the name ``nvfuser`` stands for."""
