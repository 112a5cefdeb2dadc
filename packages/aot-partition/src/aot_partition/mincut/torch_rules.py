"""The rules of torch's own min-cut partitioner: what it bans from recomputation, and how it weighs values.

They are made for Inductor, which fuses pointwise chains: recomputing inside of a fused kernel is free, so the
bans keep recomputation from breaking a fusion or from dragging a long chain along. torch's operator lists and
settings are read from the running torch. What torch searches for again at each node is found here in one pass
over the graph.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx

from aot_partition import _compat
from aot_partition.joint_graph import SYMBOLIC, JointGraph, positions
from aot_partition.mincut.network import Network
from aot_partition.mincut.tags import Tags

__all__ = ["FAR", "BanOptions", "TorchRules"]

FAR = int(1e9)
"""The distance of a node from which no path leads to the backward."""

_FUSIBLE, _RECOMPUTABLE, _VIEW, _RANDOM, _COMPUTE, _FRESH = 1, 2, 4, 8, 16, 32

_WEAR = [1.1 ** max(distance, 1) for distance in range(101)]
"""How much more a value weighs at a distance from the backward."""


@dataclasses.dataclass(frozen=True)
class BanOptions:
    """Which bans are in force; the names are those of torch's settings."""

    used_far_apart: bool
    long_fusible_chains: bool
    materialized_backward: bool
    not_in_allowlist: bool
    reductions: bool

    @classmethod
    def from_torch(cls) -> BanOptions:
        """Read the settings of the running torch."""
        config = _compat.functorch_config()
        options = cls(
            config.ban_recompute_used_far_apart,
            config.ban_recompute_long_fusible_chains,
            config.ban_recompute_materialized_backward,
            config.ban_recompute_not_in_allowlist,
            config.ban_recompute_reductions,
        )
        if config.aggressive_recomputation:
            options = dataclasses.replace(options.without_fusion_bans(), not_in_allowlist=False)
        return options

    def without_fusion_bans(self) -> BanOptions:
        """Return the bans that torch keeps when memory is scarce."""
        return dataclasses.replace(
            self, used_far_apart=False, long_fusible_chains=False, materialized_backward=False
        )


class TorchRules:
    """torch's rules for one joint graph.

    Attributes:
        distance: How many nodes lie between a node and the backward; `FAR` where none leads there.
    """

    def __init__(
        self, joint: JointGraph, tags: Tags, *, recomputable_ops: Collection[Any] | None = None
    ) -> None:
        """Look at each node once.

        Args:
            joint: The joint graph.
            tags: What its user and its effects demand.
            recomputable_ops: Replaces torch's list of operators that may be recomputed.
        """
        self._joint = joint
        self._tags = tags
        config = _compat.functorch_config()
        self._recompute_views = bool(config.recompute_views)
        self._free_parameters = bool(config.treat_parameters_as_free_to_save)
        self._max_distance = config.max_dist_from_bw
        self._collectives_free = bool(getattr(config, "unsafe_allow_optimization_of_collectives", False))
        self._flags = self._classify(recomputable_ops)
        # Whether all of a node's users can be fused with it, in the usual case: those are looked at one by one
        # only where a user follows rules of its own.
        self._particular = joint.where_operator(
            lambda target: _compat.is_higher_order(target) or _packet(target) is torch.ops.aten.cat
        )
        self._of_triton_kernel = self._find_parts_of_triton_kernels()
        self._returned = bytearray(len(joint))
        for i in (*joint.forward_results, *joint.backward_results):
            self._returned[i] = 1
        self._number = self._number_forward()
        self.distance = self._measure_distances()

    # --- facts about nodes -----------------------------------------------------------------------------

    def _classify(self, recomputable_ops: Collection[Any] | None) -> bytearray:
        classes = _compat.torch_op_classes()
        recomputable = classes.recomputable_ops if recomputable_ops is None else set(recomputable_ops)
        aten = torch.ops.aten
        fresh = (aten.lift_fresh_copy.default, aten.lift_fresh.default)

        def classify(target: Any) -> int:
            op = _packet(target)
            return (
                _FUSIBLE * (op in classes.fusible_ops)
                | _RECOMPUTABLE * (op in recomputable or target in recomputable)
                | _VIEW * (op in classes.view_ops)
                | _RANDOM * (op in classes.random_ops)
                | _COMPUTE * (op in classes.compute_intensive_ops)
                | _FRESH * (target in fresh)
            )

        return self._joint.by_operator(classify)

    def _find_parts_of_triton_kernels(self) -> bytearray:
        kernel = getattr(torch.ops.higher_order, "triton_kernel_wrapper_functional", None)
        joint = self._joint
        found = bytearray(len(joint))
        for i in positions(joint.is_part):
            found[i] = joint.nodes[joint.inputs[i][0]].target is kernel
        return found

    def _number_forward(self) -> list[int]:
        number, count = [], 0
        for required in self._joint.in_forward:
            number.append(count)
            count += required
        return number

    def _measure_distances(self) -> list[int]:
        joint = self._joint
        distance = [0] * len(joint)
        for i in reversed(range(len(joint))):
            if joint.in_forward[i]:
                distance[i] = min((distance[user] + 1 for user in joint.users[i]), default=FAR)
                distance[i] = min(distance[i], FAR)
        return distance

    def is_view(self, i: int) -> bool:
        """Tell whether torch counts a node as a view."""
        return bool(self._flags[i] & _VIEW)

    def is_fusible(self, a: int, b: int) -> bool:
        """Tell whether Inductor could compute ``b`` in the kernel that computes ``a``."""
        if self._particular[b] and self._fuses_particularly(a, b):
            return True
        return bool(self._flags[a] & self._flags[b] & _FUSIBLE) and not self._of_triton_kernel[a]

    def _fuses_particularly(self, a: int, b: int) -> bool:
        user, node = self._joint.nodes[b], self._joint.nodes[a]
        position = self._joint.position
        if _packet(user.target) is torch.ops.aten.cat:
            return True
        higher_order = torch.ops.higher_order
        if user.target is getattr(higher_order, "auto_functionalized", None):
            for name in _compat.mutable_arguments(user.args[0]):
                argument = user.kwargs[name]
                arguments = argument if isinstance(argument, list) else [argument]
                if any(isinstance(x, fx.Node) and position[x] == position[node] for x in arguments):
                    return True
        if user.target is getattr(higher_order, "triton_kernel_wrapper_functional", None):
            clones: Any = user.kwargs["tensors_to_clone"]
            given: Any = user.kwargs["kwargs"]
            return any(given[name] is node for name in clones)
        return False

    def _materialized_backward(self) -> bytearray:
        """1 where a backward node reads a value, perhaps through views, and can't be fused with it."""
        joint = self._joint
        found = bytearray(len(joint))
        for i in reversed(range(len(joint))):
            if self._returned[i]:
                found[i] = 1
                continue
            for user in joint.users[i]:
                if (not joint.in_forward[user] and not self.is_fusible(i, user)) or (
                    found[user] and self.is_view(user)
                ):
                    found[i] = 1
                    break
        return found

    def _is_materialized(self, i: int) -> bool:
        if self._returned[i] or self._joint.nodes[i].op == "placeholder":
            return True
        return any(not self.is_fusible(i, user) for user in self._joint.users[i])

    # --- the cut -----------------------------------------------------------------------------------------

    def cut(self, options: BanOptions, *, not_banned: Collection[int] = ()) -> tuple[list[int], list[int]]:
        """Cut the graph.

        Args:
            options: The bans.
            not_banned: Positions that no ban holds for.

        Returns:
            The saved positions in graph order, and the banned ones in the order in which they were banned.

        Raises:
            UnboundedCutError: the tags contradict the graph.
        """
        joint, tags = self._joint, self._tags
        network = Network(joint)
        banned: dict[int, None] = {}

        def ban(i: int, reason: str) -> None:
            if self._flags[i] & _VIEW or tags.must_recompute[i]:
                return
            if i in not_banned and (self._collectives_free or not joint.is_collective[i]):
                return
            if isinstance(joint.value(i), torch.SymFloat):
                return
            banned[i] = None
            network.recomputing_costs(i, math.inf, reason)

        read_by_backward = (
            self._materialized_backward() if options.materialized_backward else bytearray(len(joint))
        )
        inputs = {*joint.primals, *joint.forward_seeds}
        for i in range(len(joint)):
            if joint.in_tangent_closure[i]:
                continue
            if joint.required_backward[i]:
                network.backward_reads(i, "the backward returns it")
            if tags.must_recompute[i]:
                network.backward_computes(i, "it is tagged to be recomputed")
                continue
            if i in inputs:
                ban(i, "it is an input")
            if joint.reads_written[i]:
                # torch does not look at this, and computes such nodes from the new value.
                ban(i, "what it reads is overwritten")
            elif joint.in_forward[i]:
                reason = self._ban_reason(i, options, read_by_backward)
                if reason:
                    ban(i, reason)
            weight, reason = self._weight(i)
            network.saving_costs(i, weight, reason)
            network.users_read(i)
        if options.used_far_apart:
            for i in self._used_far_apart(banned):
                ban(i, "it is used far from where it is computed")
        if options.long_fusible_chains:
            self._ban_long_chains(ban, banned)
        return network.saved(), list(banned)

    def _ban_reason(self, i: int, options: BanOptions, read_by_backward: bytearray) -> str:
        joint = self._joint
        node = joint.nodes[i]
        flags = self._flags[i]
        if node.op != "call_function" or joint.is_part[i]:
            return ""
        if self._tags.must_save[i]:
            return "it is tagged to be saved"
        if flags & _FRESH or (self._recompute_views and flags & _VIEW):
            return ""
        if options.not_in_allowlist:
            if not flags & _RECOMPUTABLE:
                return "its operator is not among those that may be recomputed"
        elif flags & _RANDOM:
            return "it is random"
        elif flags & _COMPUTE:
            return "it is expensive"
        elif _compat.counts_as_non_builtin(node):
            return "it calls a custom operator"
        if read_by_backward[i]:
            return "the backward needs it in memory"
        if self._max_distance < self.distance[i] < 1000:
            return "it is far from the backward"
        if options.reductions:
            # As torch does: an argument in a list does not count, and one given twice counts twice.
            read = 0
            for argument in node.args:
                if isinstance(argument, fx.Node):
                    read += joint.size(joint.position[argument])
            if joint.size(i) * 4 < read:
                return "it is a reduction"
        return ""

    def _weight(self, i: int) -> tuple[float, str]:
        joint = self._joint
        value, meta = joint.values[i], joint.metadata[i]
        if isinstance(value, SYMBOLIC):
            return (4 if isinstance(value, torch.SymFloat) else 1), ""
        if not isinstance(value, torch.Tensor) and ("val" in meta or "tensor_meta" not in meta):
            if _compat.is_backward_state(value) or _compat.is_fake_script_object(value) or joint.is_opaque[i]:
                return 0, ""
            return math.inf, "it is not a tensor"
        if self._free_parameters and i in joint.static:
            return 0, ""
        if self._recompute_views and self._flags[i] & _VIEW:
            return math.inf, "it is a view"
        weight = int(joint.size(i) * _WEAR[min(self.distance[i], 100)])
        return (weight if self._is_materialized(i) else weight * 2), ""

    def _used_far_apart(self, banned: Collection[int]) -> Iterable[int]:
        """Yield users of a value that come after something that the value's users can't be fused with.

        ``first[i]`` is where the first node stands that can't be fused with what leads to it, from ``i`` by
        fusible steps. It follows from that of the users, so that one pass over the graph finds it for all.
        """
        joint = self._joint
        in_forward, users = joint.in_forward, joint.users
        never = len(joint)
        first = [never] * never
        for i in reversed(range(never)):
            if in_forward[i]:
                for user in users[i]:
                    if in_forward[user]:
                        here = first[user] if self.is_fusible(i, user) else user
                        if here < first[i]:
                            first[i] = here
        for i in range(never):
            if not in_forward[i]:
                continue
            near = [user for user in users[i] if in_forward[user]]
            if len(near) < 2:
                continue
            limit = min(first[user] for user in near)
            for user in near:
                if user > limit and user not in banned and self.is_fusible(i, user):
                    yield user

    def _ban_long_chains(self, ban: Any, banned: Collection[int]) -> None:
        """Ban a node a hundred steps down a fusible chain, so that no chain spans the whole model."""
        joint, number = self._joint, self._number
        visited = bytearray(len(joint))
        for start in range(len(joint)):
            if not joint.in_forward[start]:
                continue
            chain = [start]
            while chain:
                i = heapq.heappop(chain)
                if visited[i]:
                    continue
                visited[i] = 1
                if number[i] > number[start] + 100 and not chain:
                    ban(i, "it ends a long chain")
                    break
                for user in joint.users[i]:
                    if joint.in_forward[user] and user not in banned and self.is_fusible(i, user):
                        heapq.heappush(chain, user)


def _packet(target: Any) -> Any:
    return getattr(target, "overloadpacket", target)
