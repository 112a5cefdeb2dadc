"""How far loss curves are from eager's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from aot_registry.reports.charts import Curve

__all__ = ["distance_curves"]


def distance_curves(curves: Sequence[Curve]) -> tuple[list[Curve], list[str]]:
    """Tell the curves that leave the first from those that don't.

    Args:
        curves: Eager's first.

    Returns:
        How far each of the others is from the first at each step, for those that leave it; and the labels of those
        that are the same to the last bit.
    """
    leaving, same = [], []
    for curve in curves[1:]:
        distances = [
            None if one is None or other is None else abs(one - other)
            for one, other in zip(curve.values, curves[0].values, strict=False)
        ]
        if any(distances):
            leaving.append(dataclasses.replace(curve, values=distances))
        elif len(curve.values) == len(curves[0].values) and None not in distances:
            same.append(curve.label)
    return leaving, same
