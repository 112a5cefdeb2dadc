"""Compares what a partitioner made with what it was given: the two parts, run side by side with the joint graph.

Partitioners keep the names of nodes. So the value under a name must be that of the joint graph, in the forward graph,
and in the backward graph whether it is saved or computed a second time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import fx

from aot_registry import _compat
from aot_registry.bisecting.copies import laid_out_copy
from aot_registry.bisecting.tolerance import floors
from aot_registry.bisecting.trial import Parts

__all__ = ["WrongValue", "first_wrong_value"]


@dataclasses.dataclass(frozen=True)
class WrongValue:
    """A node whose value differs from that in the joint graph.

    Args:
        node: Of the part, with its metadata.
        role: ``"forward"`` or ``"backward"``.
        cause: Whether it is computed, computed again or saved.
    """

    node: fx.Node
    role: str
    cause: str


def first_wrong_value(parts: Parts) -> WrongValue | None:
    """Return the first value, in the order of the joint graph, that one of the parts has otherwise.

    None if all agree, or if a part was not called.
    """
    values = _values(parts)
    if values is None:
        return None
    joint, forward, backward = values
    nodes = {
        role: {node.name: node for node in gm.graph.nodes if node.op != "output"}
        for role, gm in (("forward", parts.forward), ("backward", parts.backward))
    }
    for name, expected in joint.items():
        for role, found in (("forward", forward), ("backward", backward)):
            if name in found and _differ(expected, found[name]):
                return WrongValue(nodes[role][name], role, _cause(role, nodes, name))
    return _first_wrong_output(parts, joint, forward, backward)


def _cause(role: str, nodes: dict[str, dict[str, fx.Node]], name: str) -> str:
    if role == "forward":
        return "the partitioner's forward graph computes another value"
    if nodes[role][name].op == "placeholder":
        return "the value saved under this name is another"
    if name in nodes["forward"]:
        return "recomputed in the backward, where it gives another value"
    return "the partitioner's backward graph computes another value"


def _values(parts: Parts) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]] | None:
    """Return the values of the joint graph and of both parts, by the names of nodes."""
    if not {"forward", "backward"} <= parts.calls.keys():
        return None
    (primals, state), (saved, backward_state) = parts.calls["forward"], parts.calls["backward"]
    given = _by_placeholder(parts.forward, primals) | _by_placeholder(parts.backward, saved)
    placeholders = [node.name for node in parts.joint.graph.nodes if node.op == "placeholder"]
    if not given.keys() >= set(placeholders):
        return None
    with torch.random.fork_rng(), torch.no_grad():
        return (
            _run(parts.joint, [given[name] for name in placeholders], state),
            _run(parts.forward, primals, state),
            _run(parts.backward, saved, backward_state),
        )


def _by_placeholder(gm: fx.GraphModule, values: list[Any]) -> dict[str, Any]:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    return dict(zip(names, values, strict=True))


def _run(gm: fx.GraphModule, inputs: list[Any], state: torch.Tensor) -> dict[str, Any]:
    """Run a graph on copies and return the value of each node, as it was when it was computed."""
    recorder = _Recorder(gm)
    torch.set_rng_state(state[: torch.get_rng_state().numel()])
    recorder.run(*(_copy(value) for value in inputs))
    return recorder.values


class _Recorder(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = _copy(value)
        return value


def _copy(value: Any) -> Any:
    return laid_out_copy(value) if isinstance(value, torch.Tensor) else value


def _first_wrong_output(
    parts: Parts, joint: dict[str, Any], forward: dict[str, Any], backward: dict[str, Any]
) -> WrongValue | None:
    """Look at what is returned: values may be right and stand at a wrong place."""
    expected = _flat(joint["output"])
    found = [*_flat(forward["output"])[: parts.num_fwd_outputs], *_flat(backward["output"])]
    for place, (want, have) in enumerate(zip(expected, found, strict=False)):
        if _differ(want, have):
            role = "forward" if place < parts.num_fwd_outputs else "backward"
            gm = parts.forward if role == "forward" else parts.backward
            place -= 0 if role == "forward" else parts.num_fwd_outputs
            output = next(node for node in gm.graph.nodes if node.op == "output")
            node = _flat(output.args[0])[place]
            cause = f"output {place} of the {role} graph is another value"
            return WrongValue(node if isinstance(node, fx.Node) else output, role, cause)
    return None


def _flat(value: Any) -> list[Any]:
    return [leaf for _, leaf in _compat.named_leaves("", value)]


def _differ(want: Any, have: Any) -> bool:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return isinstance(want, torch.Tensor) != isinstance(have, torch.Tensor)
    if want.shape != have.shape or want.dtype != have.dtype:
        return True
    if not (want.is_floating_point() or want.is_complex()):
        return not torch.equal(want, have)
    finite = torch.isfinite(want)
    if not torch.equal(finite, torch.isfinite(have)):
        return True
    if not bool(finite.any()):
        return False
    absolute, relative = floors(want.dtype)
    distance = (want[finite].to(torch.complex128) - have[finite].to(torch.complex128)).abs().max()
    return float(distance) > max(absolute, relative * float(want[finite].abs().max()))
