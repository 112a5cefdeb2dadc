"""The backend ``aot_mem_efficient``: eager kernels, with what waits for the backward kept small.

Nothing is generated and nothing fused: the graphs that AOTAutograd traced run as they are, cut by
`min_cut_partition`. So it works on every device that PyTorch works on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import aot_core
from aot_core.protocol import BoxedCallable
from aot_partition import _compat
from aot_partition.budget import parse_budget
from aot_partition.errors import BudgetTooLargeError, BudgetTooSmallError
from aot_partition.partition import min_cut_partition

if TYPE_CHECKING:
    from torch import fx

__all__ = ["MemorySettings", "aot_mem_efficient"]


@dataclasses.dataclass(frozen=True)
class MemorySettings(aot_core.Settings):
    """Options of ``aot_mem_efficient``.

    Args:
        budget: Upper limit of the peak of one training step: a fraction of the peak without a plan, a number
            of bytes, a text such as ``"6GiB"``, or ``"minimum"``. None saves as little as cheap recomputation
            allows, and plans no peak. A graph that takes less than a budget in bytes without a plan gets none.
            One for which a fraction can't be kept gets its smallest peak, and a decision that says so;
            ``strict`` makes that an error, as it always is for bytes.
        cost_model: What recomputation costs: ``"eager"`` by rule, ``"torch"`` as Inductor's partitioner sees
            it, ``"profile"`` measured on this machine, or a function from an fx node to seconds.
        decompositions: ``"none"`` keeps the operators that the model called, ``"core"`` takes them apart into
            core ATen operators, ``"inductor"`` as Inductor does. Smaller operators give the partitioner more
            to choose from, and run slower.
    """

    budget: float | str | None = None
    cost_model: Literal["eager", "torch", "profile"] | Callable[..., Any] = "eager"
    decompositions: Literal["none", "core", "inductor"] = "none"

    def __post_init__(self) -> None:
        if self.budget not in (None, "minimum"):
            parse_budget(self.budget)


def _settings() -> MemorySettings:
    return cast(MemorySettings, aot_core.current_compilation().settings)


def _decompositions() -> Mapping[Any, Any]:
    return _compat.decompositions(_settings().decompositions)


def _partition(
    joint: fx.GraphModule,
    joint_inputs: Sequence[Any],
    /,
    *,
    num_fwd_outputs: int,
    **kwargs: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    settings = _settings()

    def within(budget: float | str | None) -> tuple[fx.GraphModule, fx.GraphModule]:
        return min_cut_partition(
            joint,
            joint_inputs,
            num_fwd_outputs=num_fwd_outputs,
            budget=budget,
            cost_model=settings.cost_model,
            **kwargs,
        )

    try:
        forward, backward = within(settings.budget)
    except BudgetTooLargeError as error:
        # A budget in bytes is for the model's large graphs; its small ones, and small batches, just fit.
        aot_core.record_decision("joint graph", "split", "fits-without-a-plan", str(error), stage="partition")
        forward, backward = within(1.0)
    except BudgetTooSmallError as error:
        # A model with graph breaks has tiny graphs too, of which hardly one can do with half of its peak.
        if settings.strict or settings.budget is None or isinstance(parse_budget(settings.budget), int):
            raise
        aot_core.record_decision("joint graph", "fallback", "budget-too-small", str(error), stage="partition")
        forward, backward = within("minimum")
    _report(forward, backward, num_fwd_outputs)
    return forward, backward


def _report(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Record what waits for the backward, and what it computes again."""
    made = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    again = [node.name for node in backward.graph.nodes if node.name in made and node.op == "call_function"]
    returned: Any = forward.graph.output_node().args[0]
    saved = returned[num_fwd_outputs:]
    kept = [node for node in saved if node.op != "placeholder"]
    aot_core.record_decision(
        "joint graph",
        "split",
        "partitioned",
        f"{len(saved)} values wait for the backward, {len(kept)} of them made by the forward; "
        f"the backward computes {len(again)} nodes of the forward again",
        stage="partition",
    )


def run_eagerly(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> BoxedCallable:
    """Compile a graph to its own code: eager kernels, each value freed after its last use."""
    return aot_core.boxed_code(gm)


aot_mem_efficient = aot_core.aot_autograd(
    name="aot_mem_efficient",
    fw_compiler=run_eagerly,
    partition_fn=_partition,
    decompositions=_decompositions,
    settings=MemorySettings,
    tags=("training", "inference", "cpu", "cuda"),
    keep_inference_input_mutations=True,
)
