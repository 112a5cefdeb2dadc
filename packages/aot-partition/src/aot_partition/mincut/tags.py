"""What the user's checkpointing, and the graph's effects, demand of single nodes.

torch writes its conclusions into the nodes' metadata; here they are an array, and the graph stays as it was.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from aot_core.source import source_line
from aot_partition import _compat
from aot_partition.errors import ContradictoryTagsError
from aot_partition.joint_graph import JointGraph

__all__ = ["Tags"]

RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


class Tags:
    """Which nodes must be saved, and which must be recomputed.

    Attributes:
        must_save: 1 for nodes that the backward must not compute again.
        must_recompute: 1 for nodes that must not be saved.
        any_recompute: Whether there is one of those.
    """

    def __init__(self, joint: JointGraph) -> None:
        """Read the tags of a graph.

        Raises:
            ContradictoryTagsError: an operator of several results and a part of it are tagged against each
                other.
        """
        self._joint = joint
        policy = list(joint.policy)
        count = len(joint)
        self.must_save = bytearray(tag == CheckpointPolicy.MUST_SAVE for tag in policy)
        self.must_recompute = bytearray(tag in RECOMPUTE for tag in policy)
        if any(tag is not None for tag in policy):
            self._check_parts()
            self._recompute_wholes()
        self.any_recompute = any(self.must_recompute)
        if self.any_recompute:
            self._save_borders()
        for i in range(count):
            if not self.must_recompute[i] and joint.nodes[i].op == "call_function":
                self._save_effects(i)
        self._save_what_is_written_twice()
        for i in range(count):
            # A tuple can't be saved; its parts can.
            if self.must_save[i] and not self.must_recompute[i]:
                self._save_parts(i)

    def _check_parts(self) -> None:
        joint = self._joint
        must = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE)
        for i, node in enumerate(joint.nodes):
            if node.target is not operator.getitem:
                continue
            whole = joint.inputs[i][0]
            tags = (joint.policy[whole], joint.policy[i])
            if tags in (must, must[::-1]):
                place = source_line(node)
                raise ContradictoryTagsError(
                    f"{joint.nodes[whole].name!r} is tagged {_name(tags[0])}, and its part {node.name!r} "
                    f"{_name(tags[1])}{f' ({place})' if place else ''}. An operator and its results are saved or "
                    "recomputed together; make the policy function answer alike for both."
                )

    def _recompute_wholes(self) -> None:
        """Recompute an operator of which a part is to be recomputed."""
        joint = self._joint
        for i in reversed(range(len(joint))):
            if self.must_recompute[i] and joint.nodes[i].target is operator.getitem:
                whole = joint.inputs[i][0]
                if joint.policy[whole] is None:
                    self.must_recompute[whole] = 1

    def _save_borders(self) -> None:
        """Save what one checkpointed region hands to the next."""
        joint = self._joint
        must_save, must_recompute = self.must_save, self.must_recompute
        region: list[Any] = [meta.get("ac_graph_id") for meta in joint.metadata]
        for i, node in enumerate(joint.nodes):
            if not must_recompute[i]:
                continue
            users = joint.users[i]
            handed_on = region[i] is not None and any(
                must_recompute[user] and region[user] is not None and region[user] > region[i]
                for user in users
            )
            # A hook on the result would need the recomputed value, and the recomputation the hook's gradient.
            hooked = node.meta.get("has_backward_hook", False) and not any(must_recompute[u] for u in users)
            if handed_on or hooked:
                must_save[i], must_recompute[i] = 1, 0

    def _save_effects(self, i: int) -> None:
        joint = self._joint
        if joint.is_collective[i]:
            allowed = getattr(_compat.functorch_config(), "unsafe_allow_optimization_of_collectives", False)
            if not allowed:
                self.must_save[i] = 1
        elif joint.is_higher_order[i] and not joint.from_backward[i] and _compat.has_effect(joint.nodes[i]):
            self._save_parts(i)

    def _save_parts(self, i: int) -> None:
        joint = self._joint
        pending = [i]
        while pending:
            for user in joint.users[pending.pop()]:
                if joint.nodes[user].target is operator.getitem and not self.must_recompute[user]:
                    self.must_save[user] = 1
                    pending.append(user)

    def _save_what_is_written_twice(self) -> None:
        """Save what is written to an input in the forward, if the backward writes the input as well."""
        joint = self._joint
        copy = torch.ops.aten.copy_.default
        written_by_backward = set()
        for i in reversed(range(len(joint))):
            node = joint.nodes[i]
            if node.target is not copy:
                break
            target = joint.position[node.args[0]]  # type: ignore[index]
            if joint.pinned_to_backward[i]:
                written_by_backward.add(target)
            if joint.pinned_to_forward[i] and target in written_by_backward:
                source = joint.position[node.args[1]]  # type: ignore[index]
                self.must_save[source] = 1
                self.must_recompute[source] = 0


def _name(tag: CheckpointPolicy | None) -> str:
    return "not at all" if tag is None else tag.name
