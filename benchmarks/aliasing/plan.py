"""What each program must contain, as a function of its index alone.

The plan walks through every combination of input aliasing, output aliasing, mutation and mode in a fixed order
that is even at every length. A seed chooses the details, never what is covered.
"""

from __future__ import annotations

import dataclasses

__all__ = ["INPUT_KINDS", "MODES", "MUTATIONS", "OUTPUT_KINDS", "Plan", "plan_for"]

INPUT_KINDS = (
    # One aliasing for all calls.
    "separate",
    "duplicate",
    "same memory",
    "overlapping",
    "disjoint",
    "transposed",
    "strided",
    "base and view",
    "matrix base",
    "expanded",
    "detached",
    "view made under no_grad",
    "multi-output view",
    "two storages",
    "mixed dtypes",
    # Another aliasing with every call.
    "separate, then overlapping",
    "overlapping, then separate",
    "overlapping at another offset",
    "identical, then distinct",
    "distinct, then identical",
    "same memory, then disjoint",
    "regrouped storages",
    "growing windows",
)
"""How the arguments alias each other. From ``"separate, then overlapping"`` on it changes between calls."""

OUTPUT_KINDS = (
    "fresh",
    "input",
    "view of input",
    "view of written memory",
    "intermediate",
    "view of intermediate",
    "two views of one intermediate",
    "written input",
    "detached alias",
    "same object twice",
    "non-tensor",
)
"""What one output (at least) is."""

MUTATIONS = ("none", "data", "metadata", "data and metadata")
"""What is done to the arguments."""

MODES = ("training", "no_grad", "training", "inference", "training")
"""``"inference"`` is ``torch.inference_mode``, half of the time with inference tensors for arguments."""

CHANGING = INPUT_KINDS[INPUT_KINDS.index("separate, then overlapping") :]

_COMBINATIONS = len(INPUT_KINDS) * len(OUTPUT_KINDS) * len(MUTATIONS) * len(MODES)
# About 0.618 of the combinations and without a common factor: consecutive indices spread over all of them.
_STRIDE = 3127


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one program must contain, in the words of the lists above."""

    inputs: str
    output: str
    mutation: str
    mode: str

    @property
    def changing(self) -> bool:
        """Whether the aliasing differs between the calls."""
        return self.inputs in CHANGING


def plan_for(index: int) -> Plan:
    """Return the plan of program ``index``."""
    cell = index * _STRIDE % _COMBINATIONS
    cell, inputs = divmod(cell, len(INPUT_KINDS))
    cell, output = divmod(cell, len(OUTPUT_KINDS))
    mode, mutation = divmod(cell, len(MUTATIONS))
    output_kind, mutation_kind = OUTPUT_KINDS[output], MUTATIONS[mutation]
    if output_kind in ("view of written memory", "written input") and "data" not in mutation_kind:
        mutation_kind = "data"
    return Plan(INPUT_KINDS[inputs], output_kind, mutation_kind, MODES[mode])
