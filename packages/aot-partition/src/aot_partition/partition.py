"""The partitioner: a ``partition_fn`` for AOTAutograd."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Literal

from torch import fx

from aot_partition import _compat
from aot_partition.budget import Budget
from aot_partition.errors import InvalidBudgetError, NotDifferentiableError, UnknownOperatorError
from aot_partition.extract import Assignment, extract
from aot_partition.joint_graph import JointGraph
from aot_partition.memory.planner import MemoryPlanner, plan_for_budget
from aot_partition.mincut.activation_budget import saved_as_torch
from aot_partition.mincut.eager_rules import saved_for_eager

__all__ = ["CostModel", "min_cut_partition"]

CostModel = Literal["eager", "torch", "profile"] | Callable[[fx.Node], float]
"""What recomputation costs: by rule, measured, or a function from a node to seconds."""


def min_cut_partition(
    joint: fx.GraphModule,
    joint_inputs: Any = None,
    compiler: str | None = None,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Iterable[int] | None = None,
    recomputable_ops: Collection[Any] | None = None,
    budget: Budget | None = None,
    cost_model: CostModel = "eager",
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph into a forward and a backward graph, so that little waits in between.

    ::

        joint(primals, tangents) -> (outputs, gradients)

        forward(primals) -> (outputs, saved)
        backward(saved, tangents) -> gradients

    A ``partition_fn`` for `aot_core.aot_autograd` and for the ``aot_*`` functions of torch. For Inductor see
    `MinCutPartitioner`.

    Args:
        joint: Joint graph as AOTAutograd traces it. Not changed.
        joint_inputs: Not looked at; graphs of higher-order operators come without.
        compiler: Not looked at; Inductor passes its name.
        num_fwd_outputs: How many leading outputs belong to the forward.
        static_lifetime_input_indices: Which primals stay at one address, as parameters do.
        recomputable_ops: Operators that may be recomputed, as overload packets (``torch.ops.aten.relu``). None
            stands for torch's own list with ``cost_model="torch"``, for all with a function or ``"profile"``,
            and else for `default_recomputable_ops`.
        budget: Upper limit of the peak of one step: a fraction of the peak without a plan, or bytes
            (``"6GiB"``). ``"minimum"`` takes the smallest peak that is found, whatever it costs. None saves as few
            bytes as the rules allow, and plans no peak.
        cost_model: ``"eager"`` suits eager kernels: pointwise operators are recomputed, views are free.
            ``"torch"`` saves exactly what the running torch's own min-cut saves, by its lists and settings.
            ``"profile"`` measures each operator here. A function says what a node takes, in seconds.

    Returns:
        The forward and the backward graph module.

    Raises:
        MissingMetadataError: a node without ``meta["val"]``.
        NotDifferentiableError: the graph has no backward.
        UnknownOperatorError: ``recomputable_ops`` holds something else than operators.
        ContradictoryTagsError: a value is tagged both to be saved and to be recomputed.
        UnboundedCutError: tags forbid both to save and to recompute a value that the backward needs.
        TangentOutputError: an output of the forward depends on a tangent.
        InvalidBudgetError, BudgetTooLargeError, BudgetTooSmallError: see there.
    """
    if recomputable_ops is not None:
        recomputable_ops = _checked(recomputable_ops)
    # A planner's search does make garbage.
    with _collector_paused() if budget is None else contextlib.nullcontext():
        return _partition(
            joint, num_fwd_outputs, static_lifetime_input_indices, recomputable_ops, budget, cost_model
        )


def _partition(
    joint: fx.GraphModule,
    num_fwd_outputs: int,
    static: Iterable[int] | None,
    recomputable_ops: Collection[Any] | None,
    budget: Budget | None,
    cost_model: CostModel,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Read, cut and extract. On return the arrays of the joint graph are gone, before the collector looks."""
    graph = JointGraph(joint, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static)
    _check_differentiable(graph)
    return extract(graph, _assign(graph, recomputable_ops, budget, cost_model))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking through the process's objects while two graphs are made.

    Tens of thousands of nodes are allocated and none is garbage, so that it would do so again and again, for
    up to half of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _assign(
    graph: JointGraph,
    recomputable_ops: Collection[Any] | None,
    budget: Budget | None,
    cost_model: CostModel,
) -> Assignment:
    if not any(graph.required_backward):
        return Assignment(())
    if cost_model == "torch":
        if budget is not None:
            raise InvalidBudgetError(
                f"cost_model='torch' follows torch's own settings and takes no budget, got {budget!r}. Set "
                "torch._functorch.config.activation_memory_budget, or choose another cost model."
            )
        return Assignment(saved_as_torch(graph, recomputable_ops=recomputable_ops))
    if budget is not None:
        return _plan(graph, budget, cost_model)
    seconds = cost_model if callable(cost_model) else None
    return Assignment(saved_for_eager(graph, recomputable_ops=recomputable_ops, seconds=seconds))


def _plan(graph: JointGraph, budget: Budget, cost_model: Any) -> Assignment:
    if budget == "minimum":
        return MemoryPlanner(graph, cost_model=cost_model).smallest().assignment
    return plan_for_budget(graph, budget, cost_model=cost_model).assignment


def _checked(ops: Collection[Any]) -> frozenset[Any]:
    for op in ops:
        if not _compat.is_known_operator(op):
            raise UnknownOperatorError(
                f"recomputable_ops expects operators such as torch.ops.aten.relu, got {op!r} "
                f"({type(op).__name__})."
            )
    return frozenset(ops)


def _check_differentiable(graph: JointGraph) -> None:
    if not graph.tangents and len(graph.outputs) <= graph.num_fwd_outputs:
        raise NotDifferentiableError(
            f"The graph has {len(graph.outputs)} outputs, of which num_fwd_outputs={graph.num_fwd_outputs} belong "
            "to the forward, and no input tangents_*: there is no backward to cut off. Expected a joint graph, as "
            "AOTAutograd traces it when an input or a parameter requires a gradient."
        )
