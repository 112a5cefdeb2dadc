"""Where on an axis a value lies, and which values are marked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

__all__ = ["Scale", "bytes_scale", "linear_scale", "log_scale"]


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis.

    Args:
        low: The value at its beginning.
        high: The value at its end.
        ticks: Values to mark, in order, all of them on it.
        place: From a value to its place, 0 at ``low`` and 1 at ``high``.
        label: From a value to words.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    place: Callable[[float], float]
    label: Callable[[float], str]


def linear_scale(
    values: Iterable[float], *, label: Callable[[float], str] = "{:g}".format, from_zero: bool = False
) -> Scale:
    """Return a scale from the smallest value to the largest, marked at round numbers.

    Args:
        values: Finite.
        label: From a value to words.
        from_zero: Begin at 0, as where heights are compared.
    """
    found = list(values)
    low, high = (0.0 if from_zero else min(found, default=0.0)), max(found, default=1.0)
    if high <= low:
        low, high = (0.0, 1.0) if from_zero or not found else (low - 0.5, low + 0.5)
    return Scale(low, high, _round_numbers(low, high), lambda value: (value - low) / (high - low), label)


def bytes_scale(values: Iterable[float]) -> Scale:
    """Return a scale from 0, marked at round numbers of KiB, MiB or GiB."""
    high = max(values, default=0)
    power = min(max(0, int(high).bit_length() - 1) // 10, 4)
    unit, name = 1024**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    scale = linear_scale([high / unit], from_zero=True)
    return Scale(
        0.0,
        scale.high * unit,
        tuple(tick * unit for tick in scale.ticks),
        lambda value: scale.place(value / unit),
        lambda value: f"{value / unit:g} {name}" if value else "0",
    )


def log_scale(values: Iterable[float]) -> Scale:
    """Return a scale of powers of ten; what is not above 0 lies at its beginning."""
    positive = [value for value in values if value > 0]
    low = math.floor(math.log10(min(positive, default=1.0)))
    high = math.ceil(math.log10(max(positive, default=10.0)))
    high = max(high, low + 1)
    every = math.ceil((high - low) / 5)

    def place(value: float) -> float:
        return 0.0 if value <= 10.0**low else (math.log10(value) - low) / (high - low)

    ticks = tuple(10.0**power for power in range(low, high + 1, every))
    return Scale(10.0**low, 10.0**high, ticks, place, lambda value: f"{value:.0e}")


def _round_numbers(low: float, high: float, wanted: int = 4) -> tuple[float, ...]:
    """Return multiples of 1, 2 or 5 times a power of ten, about as many as wanted."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return tuple(round(number * step, digits) + 0.0 for number in range(first, last + 1))
