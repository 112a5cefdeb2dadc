"""Ratios from interleaved rounds.

A machine's speed drifts: other processes, heat, frequency. Ten steps of one contender and then ten of another
measure the drift as much as the contenders. So they take turns, a few steps each, in an order that rotates
from round to round, and a step time is compared only with eager's of the same round::

    round 0:  eager    inductor   aot_x        ratio 0 of aot_x = its seconds / eager's seconds
    round 1:  inductor aot_x      eager        ratio 1
    round 2:  aot_x    eager      inductor     ratio 2      -> median and quartiles of the ratios
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["Plan", "Ratio", "compile_seconds", "ratio_to", "rotated"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much every contender trains.

    Args:
        steps: Steps of a turn, timed together.
        rounds: Timed turns of each contender.
        warm_up: Untimed steps before them, in which the model is compiled.

    Raises:
        ValueError: a number below 1.
    """

    steps: int = 10
    rounds: int = 7
    warm_up: int = 2

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"Plan.{field.name} must be at least 1, got {getattr(self, field.name)}")

    @property
    def total_steps(self) -> int:
        """Steps in each loss curve."""
        return self.warm_up + self.rounds * self.steps


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio to eager: median over the rounds, and the quartiles as its spread."""

    median: float
    lower_quartile: float
    upper_quartile: float

    def to_dict(self) -> dict[str, Any]:
        """Return the ratio as JSON-ready data."""
        return dataclasses.asdict(self)


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """Return the items in an order that starts one place later every turn."""
    if not items:
        return []
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def ratio_to(seconds: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Compare two contenders' times round by round.

    Args:
        seconds: Of one contender, one number per round.
        reference: Of eager, in the same rounds.
    """
    ratios = [mine / its for mine, its in zip(seconds, reference, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, lower, upper)


def compile_seconds(warm_up_seconds: float, warm_up_steps: int, step_seconds: float) -> float:
    """Return what the first steps cost beyond what as many later ones do: the wait for the compiler.

    It holds all that stands between a call and the first result, Dynamo's tracing and the backend's imports
    included, and can so be told for any backend. At least 0.
    """
    return max(0.0, warm_up_seconds - warm_up_steps * step_seconds)
