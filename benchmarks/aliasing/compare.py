"""What can be seen of a call from outside, and where two such views differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["Difference", "Observation", "TensorRecord", "differences", "observe"]

RTOL, ATOL = 1e-9, 1e-9
"""Programs compute in float64 with a handful of operations; a compiled sine may differ in the last bits."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that is not as eager has it.

    Args:
        call: Number of the call.
        subject: ``"output 1"``, ``"argument a"``, ``"base 0"``, ``"gradient 0"`` (of root 0), ``"call"``.
        aspect: ``"values"``, ``"shape"``, ``"strides"``, ``"offset"``, ``"dtype"``, ``"requires_grad"``,
            ``"aliases"``, ``"identity"``, ``"version"``, ``"type"`` or ``"exception"``.
        detail: Expected and got.
    """

    call: int
    subject: str
    aspect: str
    detail: str = ""

    def __str__(self) -> str:
        return f"call {self.call}: {self.aspect} of {self.subject}: {self.detail}"


@dataclasses.dataclass(frozen=True)
class TensorRecord:
    """A tensor after the call, with its values copied."""

    values: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    requires_grad: bool
    storage: int
    identity: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorRecord:
        return cls(
            values=tensor.detach().clone(),
            shape=tuple(tensor.shape),
            # The stride of a dimension of size 1 means nothing.
            strides=tuple(
                stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1
            ),
            offset=tensor.storage_offset(),
            dtype=tensor.dtype,
            requires_grad=tensor.requires_grad,
            storage=tensor.untyped_storage().data_ptr(),
            identity=id(tensor),
        )


@dataclasses.dataclass
class Observation:
    """One call from outside.

    Args:
        tensors: By subject: the bases, the arguments and those outputs that are tensors.
        others: By subject: those outputs that aren't.
        bumped: The arguments whose version counter moved.
        gradients: By root, in training.
    """

    tensors: dict[str, TensorRecord]
    others: dict[str, Any]
    bumped: frozenset[str]
    gradients: dict[str, torch.Tensor | None] = dataclasses.field(default_factory=dict)


def observe(
    bases: Sequence[torch.Tensor],
    arguments: dict[str, torch.Tensor],
    outputs: Sequence[Any],
    versions: dict[str, int],
) -> Observation:
    """Record a call that has just returned.

    Args:
        bases: The tensors that own the storages.
        arguments: By name.
        outputs: As returned.
        versions: Version counters of the arguments before the call.
    """
    tensors = {f"base {number}": base for number, base in enumerate(bases)}
    tensors.update((f"argument {name}", argument) for name, argument in arguments.items())
    numbered = {f"output {number}": output for number, output in enumerate(outputs)}
    tensors.update(
        (subject, output) for subject, output in numbered.items() if isinstance(output, torch.Tensor)
    )
    return Observation(
        tensors={subject: TensorRecord.of(tensor) for subject, tensor in tensors.items()},
        others={subject: output for subject, output in numbered.items() if subject not in tensors},
        bumped=frozenset(name for name, version in versions.items() if arguments[name]._version != version),
    )


def differences(call: int, expected: Observation, got: Observation) -> list[Difference]:
    """Return where ``got`` is not as ``expected``.

    A gradient of None and one of zeros count as equal: which of them comes is a matter of how many outputs one
    autograd node has. Offsets count only in storages that something else shares.
    """
    found: list[Difference] = []

    def compare(subject: str, aspect: str, want: Any, have: Any) -> None:
        if want != have:
            found.append(Difference(call, subject, aspect, f"expected {want}, got {have}"))

    for subject in sorted(expected.others.keys() | got.others.keys()):
        compare(
            subject, "type", expected.others.get(subject, "a tensor"), got.others.get(subject, "a tensor")
        )
    groups, got_groups = _aliases(expected), _aliases(got)
    same, got_same = _identical(expected), _identical(got)
    for subject, want in expected.tensors.items():
        if subject not in got.tensors:
            continue
        have = got.tensors[subject]
        compare(subject, "shape", want.shape, have.shape)
        compare(subject, "dtype", want.dtype, have.dtype)
        compare(subject, "strides", want.strides, have.strides)
        compare(subject, "requires_grad", want.requires_grad, have.requires_grad)
        compare(subject, "aliases", groups[subject], got_groups[subject])
        compare(subject, "identity", same[subject], got_same[subject])
        if len(groups[subject]) > 1:
            offsets = (_offset(each, groups[subject], subject) for each in (expected, got))
            compare(subject, "offset", *offsets)
        found += _values(call, subject, want.values, have.values)
    for name in sorted(expected.bumped ^ got.bumped):
        compare(f"argument {name}", "version", name in expected.bumped, name in got.bumped)
    for root, gradient in expected.gradients.items():
        found += _values(call, root, gradient, got.gradients.get(root))
    return found


def _offset(observed: Observation, group: tuple[str, ...], subject: str) -> int:
    """Return where a tensor lies in what it shares: in the caller's memory, or beyond the first of some outputs.

    Where outputs begin in memory that nobody else has is no one's business.
    """
    begins = 0
    if all(name.startswith("output") for name in group):
        begins = min(observed.tensors[name].offset for name in group if name in observed.tensors)
    return observed.tensors[subject].offset - begins


def _values(
    call: int, subject: str, want: torch.Tensor | None, have: torch.Tensor | None
) -> list[Difference]:
    if want is None and have is None:
        return []
    want = torch.zeros_like(have) if want is None else want  # type: ignore[arg-type]
    have = torch.zeros_like(want) if have is None else have
    if want.shape != have.shape or want.dtype != have.dtype:
        # Reported as a shape or dtype by the caller, except for gradients.
        if not subject.startswith("gradient"):
            return []
    elif torch.allclose(want, have, rtol=RTOL, atol=ATOL, equal_nan=True):
        return []
    return [Difference(call, subject, "values", f"expected {want.tolist()}, got {have.tolist()}")]


def _aliases(seen: Observation) -> dict[str, tuple[str, ...]]:
    """Return for each tensor all those in its storage, itself included."""
    groups: dict[int, list[str]] = {}
    for subject, record in seen.tensors.items():
        groups.setdefault(record.storage, []).append(subject)
    return {subject: tuple(groups[record.storage]) for subject, record in seen.tensors.items()}


def _identical(seen: Observation) -> dict[str, tuple[str, ...]]:
    """Return for each tensor all those that are the same object."""
    groups: dict[int, list[str]] = {}
    for subject, record in seen.tensors.items():
        groups.setdefault(record.identity, []).append(subject)
    return {subject: tuple(groups[record.identity]) for subject, record in seen.tensors.items()}
