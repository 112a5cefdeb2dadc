"""Cut a joint graph in two: from a choice of saved values to a forward and a backward graph.

::

    joint(primals, tangents) -> (outputs, gradients)

    forward(primals) -> (outputs, saved)
    backward(saved, tangents) -> gradients

What the backward needs and nothing saved leads to is saved too; what is to be saved and the backward does not
need is not. So any choice gives two graphs that compute the same as the one.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.backward_order import engine_order
from aot_partition.errors import TangentOutputError, UnboundedCutError
from aot_partition.joint_graph import JointGraph, positions
from aot_partition.random_replay import RandomReplay, is_replayable
from aot_partition.saved_values import SavedValues

__all__ = ["Assignment", "extract"]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """Which values of a joint graph the backward finds saved, and when it computes the others.

    Args:
        saved: Positions of values to save. Primals and what can't be recomputed need not be named. For an
            operator of several results either it or its parts may be named.
        schedule: Positions of the nodes that the backward computes, in order. A node that occurs again is
            computed again, and whoever comes after that reads the newer value; so the older one can be freed
            before. What a node of the schedule needs and was not computed yet is computed right before it,
            and so is what the backward returns and is missing at the end. None gives the order in which the
            autograd engine would run it, each value recomputed right before its first use.
    """

    saved: Collection[int]
    schedule: Sequence[int] | None = None


def extract(joint: JointGraph, plan: Assignment) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Make the forward and the backward graph of a plan.

    Nodes keep their names. The forward returns its outputs, then the saved tensors (those that autograd's
    version check covers first), other saved objects, and last symbolic numbers. The backward takes symbolic
    numbers, tensors, other objects, tangents, and its own RNG inputs. A random node that the backward computes
    again draws what the forward drew: the forward saves the state of the generator.

    Args:
        joint: The joint graph. Not changed.
        plan: What to save, and in which order the backward runs.

    Returns:
        The forward and the backward graph module.

    Raises:
        TangentOutputError: an output of the forward depends on a tangent.
        UnboundedCutError: the backward needs a value that can be neither saved nor recomputed.
    """
    saved = _split_tuples(joint, plan.saved)
    computed, kept = _walk_backward(joint, saved, plan.schedule or ())
    values = SavedValues.of(joint, kept)
    replay = RandomReplay(joint, computed)
    forward = _forward_graph(joint, values, replay)
    backward = _backward_graph(joint, values, replay, computed, plan.schedule)
    return _compat.make_graph_module(joint.module, forward), _compat.make_graph_module(joint.module, backward)


def _split_tuples(joint: JointGraph, saved: Iterable[int]) -> set[int]:
    """Name the parts of a value of several in its place."""
    found: set[int] = set()
    pending = list(saved)
    while pending:
        i = pending.pop()
        if isinstance(joint.value(i), (tuple, list)) or _is_split(joint, i):
            pending.extend(user for user in joint.users[i] if joint.nodes[user].target is operator.getitem)
        else:
            found.add(i)
    return found


def _is_split(joint: JointGraph, i: int) -> bool:
    return "val" not in joint.nodes[i].meta and any(
        joint.nodes[user].target is operator.getitem for user in joint.users[i]
    )


def _walk_backward(
    joint: JointGraph, saved: Collection[int], schedule: Sequence[int]
) -> tuple[bytearray, set[int]]:
    """Return what the backward computes, and what it must find saved.

    What a schedule asks for may be both: saved for its first readers, and computed again for later ones.
    """
    given = bytearray(len(joint))
    for group in (joint.tangents, joint.backward_seeds, joint.backward_states):
        for i in group:
            given[i] = 1
    computed = bytearray(len(joint))
    kept: set[int] = set()
    nodes, statistics, inputs = joint.nodes, joint.statistics, joint.inputs
    reachable = joint.reachable_in_forward
    out_of_reach = _out_of_reach(joint)

    def walk(pending: list[int]) -> None:
        while pending:
            i = pending.pop()
            if computed[i] or given[i] or i in kept:
                continue
            wanted = i in saved and not isinstance(joint.value(i), torch.SymFloat)
            if (wanted and reachable[i]) or out_of_reach[i]:
                if not reachable[i]:
                    raise UnboundedCutError(
                        f"The backward needs {nodes[i].name!r}, which neither half of the graph can compute."
                    )
                kept.add(i)
                continue
            computed[i] = 1
            if i in statistics:
                pending.extend(j for j in inputs[i] if j not in statistics[i])
            else:
                pending.extend(inputs[i])

    effects = [i for i, impure in enumerate(joint.impure) if impure and not joint.in_forward[i]]
    walk([*joint.backward_results, *effects])
    again = [i for i in schedule if not computed[i] and not given[i] and not out_of_reach[i]]
    for i in again:
        computed[i] = 1
    walk([j for i in again for j in inputs[i] if j not in statistics.get(i, ())])
    return computed, kept


def _out_of_reach(joint: JointGraph) -> bytearray:
    """Return 1 where the backward may not compute a node, not even again."""
    found = bytearray(map(operator.or_, joint.pinned_to_forward, joint.reads_written))
    for group in (joint.primals, joint.tangents, joint.forward_seeds, joint.backward_seeds):
        for i in group:
            found[i] = 1
    for i in positions(joint.is_random):
        if joint.in_forward[i] and not is_replayable(joint.nodes[i]):
            found[i] = 1
    return found


# --- forward -----------------------------------------------------------------------------------------------


def _forward_graph(joint: JointGraph, values: SavedValues, replay: RandomReplay) -> fx.Graph:
    results = [_forward_result(joint, x) for x in joint.outputs[: joint.num_fwd_outputs]]
    wanted = bytearray(len(joint))
    for x in results:
        if isinstance(x, int):
            wanted[x] = 1
    for i in values.all():
        wanted[i] = 1
    for i in range(len(joint) - 1, -1, -1):
        if wanted[i] or (joint.impure[i] and joint.in_forward[i]):
            wanted[i] = 1
            for j in joint.inputs[i]:
                wanted[j] = 1

    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for i in (*joint.primals, *joint.forward_seeds):
        _add_placeholder(joint, i, graph, env)
    order = [i for i, is_wanted in enumerate(wanted) if is_wanted and joint.nodes[i].op != "placeholder"]
    for i in _getitems_first(joint, order):
        copy = replay.draw(graph, i, env) if i in replay.replayed else _copy(joint, i, graph, env)
        _bind(joint, i, copy, env)

    outputs: list[Any] = [env[joint.nodes[x]] if isinstance(x, int) else x.value for x in results]
    outputs += [env[joint.nodes[i]] for i in values.checked]
    outputs += replay.states
    outputs += [env[joint.nodes[i]] for i in values.after_states()]
    first_unchecked = len(values.checked) + len(replay.states)
    last_unchecked = first_unchecked + len(values.unchecked)
    descriptions = joint.descriptions[: joint.num_fwd_outputs] + [
        _compat.saved_descriptor(k, version_checked=not first_unchecked <= k < last_unchecked)
        for k in range(len(outputs) - joint.num_fwd_outputs)
    ]
    _add_output(graph, outputs, descriptions)
    return graph


@dataclasses.dataclass(frozen=True)
class _Constant:
    """An output that is no node, told from a position."""

    value: Any


def _forward_result(joint: JointGraph, output: Any) -> int | _Constant:
    if not isinstance(output, fx.Node):
        return _Constant(output)
    i = joint.position[output]
    if joint.reachable_in_forward[i]:
        return i
    # An input that the backward writes is returned as the forward sees it.
    written = _written_input(joint, joint.nodes[i])
    if written is not None and joint.reachable_in_forward[written]:
        return written
    raise TangentOutputError(_explain_tangent_output(joint, i))


def _written_input(joint: JointGraph, node: fx.Node) -> int | None:
    if node.op != "call_function":
        return None
    aten = torch.ops.aten
    source = node.args[0] if node.args else None
    if node.target is aten.copy_.default and joint.pinned_to_backward[joint.position[node]]:
        return joint.position[source] if isinstance(source, fx.Node) else None
    if node.target in (aten.view.default, aten.reshape.default) and isinstance(source, fx.Node):
        node = source
    if node.target is not operator.getitem:
        return None
    call: Any = node.args[0]
    arguments = call.kwargs.get("kwargs") if isinstance(call, fx.Node) else None
    original = arguments.get(node.args[1]) if isinstance(arguments, dict) else None
    return joint.position[original] if isinstance(original, fx.Node) else None


def _explain_tangent_output(joint: JointGraph, i: int) -> str:
    number = joint.forward_results.index(i)
    path = [i]
    blocked = bytearray(len(joint))
    # Towards whatever the forward lacks, by the shortest way: breadth first.
    previous = {i: -1}
    for j in path:
        if joint.nodes[j].op == "placeholder" or joint.pinned_to_backward[j]:
            break
        for k in joint.inputs[j]:
            if not joint.reachable_in_forward[k] and not blocked[k]:
                blocked[k] = 1
                previous[k] = j
                path.append(k)
    chain = [j]
    while previous[chain[-1]] >= 0:
        chain.append(previous[chain[-1]])
    names = " -> ".join(joint.nodes[k].name for k in chain)
    description = joint.descriptions[number] if number < len(joint.descriptions) else None
    what = f" ({description!r})" if description is not None else ""
    return (
        f"Output {number} of the forward{what} is {joint.nodes[i].name!r}, which only the backward can compute: "
        f"{names}. Expected an output that depends on the forward's inputs alone. Check num_fwd_outputs="
        f"{joint.num_fwd_outputs}, and that no gradient is returned from the forward."
    )


# --- backward ----------------------------------------------------------------------------------------------


def _backward_graph(
    joint: JointGraph,
    values: SavedValues,
    replay: RandomReplay,
    computed: bytearray,
    schedule: Sequence[int] | None,
) -> fx.Graph:
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for i in (*values.numbers, *values.checked):
        _add_placeholder(joint, i, graph, env)
    replay.add_state_inputs(graph)
    for i in (*values.unchecked, *values.objects, *joint.tangents, *joint.backward_seeds):
        _add_placeholder(joint, i, graph, env)
    for i in joint.backward_states:
        _add_placeholder(joint, i, graph, env)

    if schedule is None:
        order: Iterable[int] = _getitems_first(joint, engine_order(joint, computed))
    else:
        order = _on_demand(joint, computed, schedule, saved=values.all())
    for i in order:
        if i in joint.statistics:
            _add_stand_ins(joint, i, graph, env)
        copy = replay.draw_again(graph, i, env) if i in replay.replayed else _copy(joint, i, graph, env)
        copy.meta["autograd_backward"] = True
        _bind(joint, i, copy, env)

    results = joint.outputs[joint.num_fwd_outputs :]
    _add_output(
        graph,
        [env[x] if isinstance(x, fx.Node) else x for x in results],
        joint.descriptions[joint.num_fwd_outputs :],
    )
    return graph


def _add_stand_ins(joint: JointGraph, i: int, graph: fx.Graph, env: dict[fx.Node, fx.Node]) -> None:
    """Put zeros where a batch norm reads running statistics: the forward has overwritten those."""
    for j in joint.statistics[i]:
        value = joint.value(j)
        zeros = graph.call_function(
            torch.ops.aten.zeros.default,
            (list(value.shape),),
            {"dtype": value.dtype, "device": value.device, "pin_memory": False},
        )
        zeros.meta = {"val": value, "autograd_backward": True}
        env[joint.nodes[j]] = zeros


def _on_demand(
    joint: JointGraph, computed: bytearray, schedule: Sequence[int], *, saved: Iterable[int]
) -> list[int]:
    """Complete a schedule: what it leaves out comes right before it is needed, or at the end."""
    order: list[int] = []
    done = bytearray(len(joint))
    for i in saved:
        done[i] = 1

    def bring(wanted: int) -> None:
        missing = [wanted]
        brought = {wanted}
        for i in missing:
            for j in joint.inputs[i]:
                if computed[j] and not done[j] and j not in brought:
                    brought.add(j)
                    missing.append(j)
        for i in sorted(brought):
            done[i] = 1
            order.append(i)

    for i in schedule:
        if computed[i]:
            bring(i)
    for i, is_computed in enumerate(computed):
        if is_computed and joint.required_backward[i] and not done[i]:
            bring(i)
    return order


def _getitems_first(joint: JointGraph, order: Sequence[int]) -> list[int]:
    """Take a value of several apart as soon as it is there, so that unused parts are freed."""
    taken = [i for i in order if joint.is_part[i]]
    if not taken:
        return list(order)
    present = set(order)
    parts: dict[int, list[int]] = {}
    for i in taken:
        if joint.inputs[i][0] in present:
            parts.setdefault(joint.inputs[i][0], []).append(i)
    moved: list[int] = []
    raised = {i for group in parts.values() for i in group}
    for i in order:
        if i in raised:
            continue
        moved.append(i)
        if i in parts:
            pending = parts[i][::-1]
            while pending:
                moved.append(pending.pop())
                pending += reversed(parts.get(moved[-1], ()))
    return moved


# --- both --------------------------------------------------------------------------------------------------


def _add_placeholder(joint: JointGraph, i: int, graph: fx.Graph, env: dict[fx.Node, fx.Node]) -> None:
    node = joint.nodes[i]
    copy = graph.placeholder(node.name)
    copy.meta = dict(node.meta)
    _bind(joint, i, copy, env)


_set_args: Any = fx.Node.args.fset  # type: ignore[attr-defined]
"""Assigns the arguments of a node. Written as an assignment, it would also be filed anew under its operator."""


def _copy(joint: JointGraph, i: int, graph: fx.Graph, env: dict[fx.Node, fx.Node]) -> fx.Node:
    """Add a node to a graph, under its name.

    ``fx.Graph.node_copy`` does the same in twice the time: it flattens the arguments to look for symbols that stand
    there without a node, of which the joint graph has as many as it has.
    """
    node = joint.nodes[i]
    copy = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    _set_args(copy, fx.map_arg(node.args, env.__getitem__))
    if node.kwargs:
        copy.kwargs = fx.map_arg(node.kwargs, env.__getitem__)
    copy.meta.update(node.meta)
    if i in joint.merged_storages:
        copy.meta["merged_storages"] = joint.merged_storages[i]
    return copy


def _bind(joint: JointGraph, i: int, copy: fx.Node, env: dict[fx.Node, fx.Node]) -> None:
    env[joint.nodes[i]] = copy
    for twin in joint.twins_of.get(i, ()):
        env[twin] = copy


def _add_output(graph: fx.Graph, values: Sequence[Any], descriptions: Sequence[Any]) -> None:
    output = graph.output(tuple(values))
    output.meta["desc"] = list(descriptions)
    output.meta["output_stack_traces"] = [
        value.meta.get("stack_trace") if isinstance(value, fx.Node) else None for value in values
    ]
