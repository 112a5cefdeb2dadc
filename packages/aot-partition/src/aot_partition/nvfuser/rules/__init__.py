"""How each ATen operator is said to nvFuser: one rule an operator, its claim beside it, one file a family.

A rule is a function of an `Emitter` and the operator's arguments, by the names of its schema. A claim is a function
of the node and the same arguments that returns why this call of the operator is *not* taken, or None.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch import fx

__all__ = ["FAMILIES", "Rule", "kind_of", "rule", "rules"]

FAMILIES = (
    "pointwise",
    "special",
    "comparison",
    "conditional",
    "conversion",
    "creation",
    "shape",
    "joining",
    "index",
    "resampling",
    "reduction",
    "scan",
    "sorting",
    "random",
    "matrix",
)

Kind = Literal["compute", "reduction", "scan", "shape", "create", "index", "random", "matrix", "tuple"]
F = TypeVar("F", bound=Callable[..., Any])


class Rule(NamedTuple):
    """What is known of one operator.

    Args:
        emit: Writes a call of it into a definition, and returns the values of its results.
        claim: Returns why a call is not taken, or None; None if every call is.
        kind: ``"shape"`` moves and reshapes without computing, ``"tuple"`` takes one of several results;
            ``"scan"`` needs a CUDA toolkit where it is run.
    """

    emit: Callable[..., Any]
    claim: Callable[..., str | None] | None
    kind: Kind


_rules: dict[Any, Rule] = {}


def rule(
    *operators: Any, kind: Kind = "compute", claim: Callable[..., str | None] | None = None
) -> Callable[[F], F]:
    """Declare the decorated function as the rule of operators.

    Raises:
        ValueError: an operator has a rule already.
    """

    def declare(emit: F) -> F:
        for each in operators:
            if each in _rules:
                raise ValueError(f"{each} has two rules: {_rules[each].emit.__name__} and {emit.__name__}")
            _rules[each] = Rule(emit, claim, kind)
        return emit

    return declare


@functools.cache
def rules() -> Mapping[Any, Rule]:
    """Return the rules of all families, by operator."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
    return _rules


def kind_of(node: fx.Node) -> Kind | None:
    """Return the kind of the rule for a node's operator; None if there is none."""
    known = rules().get(node.target)
    return None if known is None else known.kind
