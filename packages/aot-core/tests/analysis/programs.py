"""Small random programs over views of one tensor, and what they do in eager mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda base: base.view(8),
    "front": lambda base: base[:4],
    "middle": lambda base: base[2:6],
    "back": lambda base: base[4:],
    "even": lambda base: base[::2],
    "square": lambda base: base[1:5].view(2, 2),
    "turned": lambda base: base.view(4, 2).t(),
}

WRITES: dict[str, Callable[[list[torch.Tensor], int], object]] = {
    "scale": lambda inputs, i: inputs[i].mul_(2),
    "add_mean": lambda inputs, i: inputs[i].add_(inputs[-1].mean()),
    "write_view": lambda inputs, i: inputs[i].reshape(-1)[:2].add_(1),
    "unsqueeze": lambda inputs, i: inputs[i].unsqueeze_(0),
    "scale_without_grad": lambda inputs, i: _without_grad(inputs[i]),
}


def _without_grad(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.mul_(3)


OUTPUTS: dict[str, Callable[[list[torch.Tensor], int], list[torch.Tensor]]] = {
    "fresh": lambda inputs, i: [inputs[i] * 3],
    "itself": lambda inputs, i: [inputs[i]],
    "view": lambda inputs, i: [inputs[i][..., 1:]],
    "parts": lambda inputs, i: list(inputs[i].unbind(-1)),
    "views_of_intermediate": lambda inputs, i: _views(inputs[i] + 1),
    "detached": lambda inputs, i: [inputs[i].detach()],
    "total": lambda inputs, i: [sum(value.sum() for value in inputs)],  # type: ignore[list-item]
}


def _views(value: torch.Tensor) -> list[torch.Tensor]:
    return [value.reshape(-1)[1:], value[..., :1], value.reshape(-1)]


@dataclasses.dataclass(frozen=True)
class Program:
    """Views to pass, writes to do to them in turn, outputs to return; each by name and number of the input."""

    views: tuple[str, ...]
    writes: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    repeated: int | None
    training: bool

    def inputs(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Make new inputs; return the leaf from which they come, and them."""
        leaf = torch.arange(1.0, 9.0, dtype=torch.float64).requires_grad_(self.training)
        base = leaf * 1.0
        inputs = [VIEWS[name](base) for name in self.views]
        if self.repeated is not None:
            inputs.append(inputs[self.repeated % len(inputs)])
        return leaf, inputs

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Run the program."""
        given = list(inputs)
        for name, number in self.writes:
            WRITES[name](given, number % len(given))
        return [
            output for name, number in self.outputs for output in OUTPUTS[name](given, number % len(given))
        ]


def programs(*, repeated: bool = True) -> st.SearchStrategy[Program]:
    """Programs with at least one write."""
    number = st.integers(0, 3)
    return st.builds(
        Program,
        views=st.lists(st.sampled_from(sorted(VIEWS)), min_size=2, max_size=3).map(tuple),
        writes=st.lists(st.tuples(st.sampled_from(sorted(WRITES)), number), min_size=1, max_size=3).map(
            tuple
        ),
        outputs=st.lists(st.tuples(st.sampled_from(sorted(OUTPUTS)), number), min_size=1, max_size=3).map(
            tuple
        ),
        repeated=st.none() | number if repeated else st.none(),
        training=st.booleans(),
    )


def observe(
    function: Callable[..., Any], leaf: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """Run a function and return all that its caller can see of it."""
    outputs = list(function(*inputs))
    seen = [*outputs, *inputs]
    loss = sum((value * value).sum() for value in seen if value.requires_grad)
    gradient = None
    if isinstance(loss, torch.Tensor) and leaf.requires_grad:
        (gradient,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    return {
        "values": [value.detach().clone() for value in seen],
        "layouts": [(value.stride(), value.storage_offset()) for value in inputs],
        "require_grad": [value.requires_grad for value in seen],
        "aliases": [
            (i, j)
            for i, one in enumerate(outputs)
            for j, other in enumerate(inputs)
            if one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        ],
        "gradient": gradient,
    }


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Say in which respects two observations differ."""
    found = [key for key in ("layouts", "require_grad", "aliases") if expected[key] != got[key]]
    if [value.shape for value in expected["values"]] != [value.shape for value in got["values"]]:
        found.append("shapes")
    elif not all(map(torch.allclose, expected["values"], got["values"])):
        found.append("values")
    one, other = expected["gradient"], got["gradient"]
    if (one is None) != (other is None) or (one is not None and not torch.allclose(one, other)):
        found.append("gradient")
    return found
