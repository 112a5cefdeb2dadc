"""Whether a backend's results are eager's, judged by what float64 says of both.

A fixed tolerance is too strict for bfloat16 and too lax for float32. Here eager is the yardstick: with
``e`` the largest distance of eager's value from the float64 one, the backend may be ``3 e`` away from it,
plus a few units in the last place for the small tensors of which eager happens to hit every value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["assert_matches"]

EAGER_ERROR_FACTOR = 3.0
# By the bits of the dtype. Few where the next narrower dtype is near and must be told apart. Many in float64,
# where the reference is eager itself, so that its error can't be measured: room for another order of summation.
UNITS_IN_LAST_PLACE = {16: 2.0, 32: 8.0, 64: 64.0}


def assert_matches(actual: Any, eager: Any, wide: Any, *, exact: bool = False) -> None:
    """Compare what a check observed with the backend, with eager, and with eager in float64.

    Tensors must agree in dtype, shape, device, layout and ``requires_grad``, and in values as said above;
    anything else must be equal and of one type. Dictionaries, lists and tuples are compared item by item.

    Args:
        actual: Observed with the backend.
        eager: Observed with eager.
        wide: Observed with eager in float64.
        exact: Compare values bit for bit with eager's; for results that any right order of evaluation
            gives exactly.

    Raises:
        AssertionError: names the item, expected and got, and the largest error.
    """
    actual_items, eager_items = dict(_flatten(actual)), dict(_flatten(eager))
    wide_items = dict(_flatten(wide))
    if actual_items.keys() != eager_items.keys():
        raise AssertionError(
            f"the structure differs from eager's: expected {sorted(eager_items)}, got {sorted(actual_items)}"
        )
    for path, expected in eager_items.items():
        _match_item(path, actual_items[path], expected, wide_items[path], exact)


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        # The container is an item too: a list is not a tuple, and an empty one must be seen.
        yield path, f"{type(value).__name__} of {len(value)}"
        for index, item in enumerate(value):
            yield from _flatten(item, f"{path}[{index}]")
    else:
        yield path, value


def _match_item(path: str, actual: Any, expected: Any, wide: Any, exact: bool) -> None:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same_type = type(actual) is type(expected)
        if not same_type or actual != expected:
            raise AssertionError(f"{path}: expected {expected!r} as in eager, got {actual!r}")
        return
    for trait in ("dtype", "shape", "layout", "device", "requires_grad"):
        if getattr(actual, trait) != getattr(expected, trait):
            raise AssertionError(
                f"{path}: {trait} differs from eager's: expected {describe(expected)}, got {describe(actual)}"
            )
    with torch.no_grad():
        _match_values(path, actual.detach(), expected.detach(), wide.detach(), exact)


def _match_values(
    path: str, actual: torch.Tensor, expected: torch.Tensor, wide: torch.Tensor, exact: bool
) -> None:
    if expected.numel() == 0:
        return
    discrete = not (expected.dtype.is_floating_point or expected.dtype.is_complex)
    got, want, truth = (_dense(tensor) for tensor in (actual, expected, wide))
    finite = torch.isfinite(want)
    if not torch.equal(finite, torch.isfinite(got)) or not torch.equal(
        _where_not(got, finite), _where_not(want, finite)
    ):
        raise AssertionError(f"{path}: infinities or NaNs differ from eager's: {_both(actual, expected)}")
    got, want, truth = got[finite], want[finite], truth[finite]
    if want.numel() == 0:
        return
    if exact or discrete:
        error = (got - want).abs().max().item()
        allowed, yardstick = 0.0, "eager"
    else:
        error = (got - truth).abs().max().item()
        own = (want - truth).abs().max().item()
        precision = torch.finfo(expected.dtype)
        slack = UNITS_IN_LAST_PLACE[precision.bits] * precision.eps * truth.abs().max().item()
        allowed, yardstick = EAGER_ERROR_FACTOR * own + slack, "eager in float64"
    if error > allowed:
        raise AssertionError(
            f"{path}: values differ from those of {yardstick}: largest error {error:.3g}, "
            f"allowed {allowed:.3g}; {_both(actual, expected)}"
        )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values in the widest dtype of their kind, for differences that don't round or wrap."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)


def _where_not(values: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """Return the non-finite values in a form that compares NaN equal to NaN."""
    rest = values[~finite]
    if not (rest.dtype.is_floating_point or rest.dtype.is_complex):
        return rest
    parts = torch.view_as_real(rest) if rest.dtype.is_complex else rest
    return torch.nan_to_num(parts, nan=0.0, posinf=1.0, neginf=-1.0)


def _both(actual: torch.Tensor, expected: torch.Tensor) -> str:
    return f"eager gives {describe(expected)}, the backend {describe(actual)}"


def describe(tensor: torch.Tensor) -> str:
    """Return dtype, shape, strides and what else is not plain, and the values of a small tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    text = f"{dtype}{list(tensor.shape)}"
    if tensor.layout is torch.strided:
        text += f" with strides {tuple(tensor.stride())}"
    else:
        text += f" in layout {tensor.layout}"
    if tensor.device.type != "cpu":
        text += f" on {tensor.device}"
    if tensor.requires_grad:
        text += " requiring a gradient"
    if 0 < tensor.numel() <= 8 and tensor.layout is torch.strided:
        text += f" {tensor.detach().tolist()}"
    return text
