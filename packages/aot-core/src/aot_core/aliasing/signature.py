"""Which inputs of one call share memory, and how: the part of a call that torch's guards don't see.

Dynamo guards the size, the strides and the identity of its inputs, not what memory they lie in. A graph that
writes an input is right only for the sharing it was compiled for, so the sharing is read at every call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from typing import Any

import torch

from aot_core import _compat
from aot_core.aliasing.memory import Geometry, alias_root, geometry_of, is_leaf, storage_address

__all__ = [
    "AliasGroup",
    "AliasSignature",
    "Member",
    "is_view_of_leaf",
    "read_signature",
]


@dataclasses.dataclass(frozen=True)
class Member:
    """One input of a group.

    Args:
        position: Its position among the inputs.
        same_as: Position of the first input that is this very tensor; its own, if none is.
        root: Which of the group's roots it comes from; see `alias_root`.
        is_root: It is a root itself.
        geometry: Size, strides and offset in the shared memory.
        dtype: Its dtype.
        requires_grad: It requires a gradient.
        is_leaf: It is a leaf.
        is_plain_view: It is neither conjugated nor negated on reading.
    """

    position: int
    same_as: int
    root: int
    is_root: bool
    geometry: Geometry
    dtype: torch.dtype
    requires_grad: bool
    is_leaf: bool
    is_plain_view: bool


@dataclasses.dataclass(frozen=True)
class AliasGroup:
    """Inputs that lie in the same memory.

    Args:
        members: In the order of the inputs. Two at least; or one, if it is a view of a leaf, or viewed.
        roots_require_grad: For each root, whether it requires a gradient.
        root_dtypes: For each root, its dtype.
        root_geometries: For each root, its size, strides and offset.
        elements: How many elements of the first member's dtype fit into the shared memory.
    """

    members: tuple[Member, ...]
    roots_require_grad: tuple[bool, ...]
    root_dtypes: tuple[torch.dtype, ...]
    root_geometries: tuple[Geometry, ...]
    elements: int

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the members."""
        return tuple(member.position for member in self.members)

    def positions_of(self, root: int) -> tuple[int, ...]:
        """Return the positions of the members that come from a root."""
        return tuple(member.position for member in self.members if member.root == root)

    @property
    def carrier(self) -> int | None:
        """Which root can stand for the group, so that autograd sees what happens to it; None if none can.

        The only one; or the only one that requires a gradient, if whatever comes from the others is detached.
        """
        if len(self.roots_require_grad) == 1:
            return 0
        differentiable = [i for i, needed in enumerate(self.roots_require_grad) if needed]
        if len(differentiable) != 1:
            return None
        others_detached = all(m.root == differentiable[0] or not m.requires_grad for m in self.members)
        return differentiable[0] if others_detached else None

    @property
    def base_geometry(self) -> Geometry:
        """Size, strides and offset of what stands for the group: the carrier, or all of the memory."""
        return ((self.elements,), (1,), 0) if self.carrier is None else self.root_geometries[self.carrier]

    @property
    def base_dtype(self) -> torch.dtype:
        """Dtype of what stands for the group."""
        return self.members[0].dtype if self.carrier is None else self.root_dtypes[self.carrier]

    def is_detached(self, member: Member) -> bool:
        """Tell whether autograd does not connect a member with what stands for the group."""
        return self.carrier not in (None, member.root) or member.dtype != self.base_dtype

    def is_carrier(self, member: Member) -> bool:
        """Tell whether a member is itself what stands for the group."""
        return member.is_root and member.root == self.carrier

    @property
    def one_tensor(self) -> bool:
        """Whether the members are all one tensor, passed several times."""
        return len(self.members) > 1 and all(
            member.same_as == self.members[0].position for member in self.members
        )


AliasSignature = tuple[AliasGroup, ...]
"""All groups of a call that matter. Hashable; empty when nothing is shared."""


def read_signature(
    inputs: Sequence[Any], watched: Sequence[int], changed: Set[int], viewed: Set[int] = frozenset()
) -> AliasSignature:
    """Group the inputs of a call by the memory they lie in.

    Args:
        inputs: Of the call.
        watched: Positions of the inputs that have memory of their own: strided tensors.
        changed: Positions of those that the graph changes; a group without one of them is left out.
        viewed: Positions of those that a view of their root has to stand for. Each is in a group, if in one of its
            own.
    """
    by_address: dict[int, list[int]] = {}
    for position in watched:
        by_address.setdefault(storage_address(inputs[position]), []).append(position)
    return tuple(
        _group([(position, inputs[position]) for position in positions])
        for address, positions in by_address.items()
        if address
        and not changed.isdisjoint(positions)
        and (len(positions) > 1 or positions[0] in viewed or is_view_of_leaf(inputs[positions[0]]))
    )


def is_view_of_leaf(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a view of a leaf that requires a gradient.

    Autograd lets nobody write to one, except hidden from it: to the leaf itself, then.
    """
    base = tensor._base
    return base is not None and is_leaf(base) and base.requires_grad


def _group(tensors: list[tuple[int, torch.Tensor]]) -> AliasGroup:
    roots: list[torch.Tensor] = []
    members = []
    for position, tensor in tensors:
        root = alias_root(tensor)
        index = next((i for i, known in enumerate(roots) if known is root), len(roots))
        if index == len(roots):
            roots.append(root)
        members.append(
            Member(
                position,
                next(first for first, other in tensors if other is tensor),
                index,
                root is tensor,
                geometry_of(tensor),
                tensor.dtype,
                tensor.requires_grad,
                is_leaf(tensor),
                not (tensor.is_conj() or tensor.is_neg()),
            )
        )
    first = tensors[0][1]
    return AliasGroup(
        tuple(members),
        tuple(root.requires_grad for root in roots),
        tuple(root.dtype for root in roots),
        tuple(geometry_of(root) for root in roots),
        _compat.concrete(first.untyped_storage().nbytes()) // first.element_size(),
    )
