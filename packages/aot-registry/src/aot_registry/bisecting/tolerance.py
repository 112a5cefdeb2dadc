"""When a quantity of a compiled run is wrong: its error exceeds what eager's own rounding can explain.

With ``x`` the value in float64 and ``e`` that of eager, a compiled value ``c`` fails when ::

    max |c - x|  >  max(absolute floor,  relative floor · max |x|,  10 · max |e - x|)

The floors are for small tensors, of which eager may happen to hit every element. Where the float64 run went another
way than eager (a rounded value decided a branch), or there is none, ``x`` is ``e``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from aot_registry.bisecting.observation import Observation, Quantity

__all__ = ["EAGER_FACTOR", "Failure", "Yardstick", "floors"]

EAGER_FACTOR = 10
"""How many times eager's own error a right backend may be off."""

DIVERGED = 0.1
"""Part of the largest value from which on an error of eager's is no rounding: float64 went another way."""

_FLOORS = {
    torch.float64: (1e-14, 1e-11),
    torch.float32: (1e-7, 1e-5),
    torch.float16: (1e-7, 4e-3),
    torch.bfloat16: (1e-7, 3e-2),
}


def floors(dtype: torch.dtype) -> tuple[float, float]:
    """Return the absolute floor, in units of the value, and the relative one, for a type of elements."""
    if dtype.is_complex:
        dtype = torch.float64 if dtype == torch.complex128 else torch.float32
    return _FLOORS.get(dtype, (1e-7, 2.0 * torch.finfo(dtype).eps))


@dataclasses.dataclass(frozen=True)
class Failure:
    """One thing that a run does otherwise than eager.

    Args:
        quantity: Its name, such as ``"output[0]"`` or ``"gradient of parameter fc.weight"``.
        aspect: ``"value"``, ``"shape"``, ``"dtype"``, ``"device"``, ``"stride"``, ``"memory"`` (what it shares it
            with), ``"requires_grad"``, ``"missing"``, ``"unexpected"`` or ``"exception"``.
        detail: What was expected and found.
        error: Largest distance from the float64 value, where values are compared by distance.
        allowed: What it may be.
        eager_error: Eager's own.
    """

    quantity: str
    aspect: str
    detail: str
    error: float | None = None
    allowed: float | None = None
    eager_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data: numbers that JSON lacks are None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self).items()
        }

    def __str__(self) -> str:
        return f"{self.quantity}: {self.aspect}: {self.detail}"


@dataclasses.dataclass(frozen=True)
class Yardstick:
    """What compiled runs are compared with.

    Args:
        eager: A run in eager.
        again: Another: where the two differ, eager is not exact, and a compiled run need not be.
        exact: A run in float64, or None where the model can't be run in it.
    """

    eager: Observation
    again: Observation
    exact: Observation | None

    def failures(self, found: Observation) -> list[Failure]:
        """Return what a run does otherwise than eager, in the order in which it comes about."""
        failures: list[Failure] = []
        for name, expected in self.eager.items():
            if name not in found:
                failures.append(Failure(name, "missing", "the compiled run has none"))
            else:
                failures += self._compare(name, expected, found[name])
        failures += [
            Failure(name, "unexpected", "eager has none") for name in found if name not in self.eager
        ]
        return failures

    def _compare(self, name: str, expected: Quantity, found: Quantity) -> list[Failure]:
        want, have = expected.value, found.value
        if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
            return self._compare_plain(name, want, have)
        failures = []
        for aspect in ("shape", "dtype", "device"):
            one, other = getattr(want, aspect), getattr(have, aspect)
            if one != other:
                one, other = (tuple(one), tuple(other)) if aspect == "shape" else (one, other)
                failures.append(Failure(name, aspect, f"expected {one}, got {other}"))
        if failures:
            return failures
        for aspect in ("stride", "requires_grad", "shares"):
            one, other = getattr(expected, aspect), getattr(found, aspect)
            if one != other and (aspect != "shares" or getattr(self.again.get(name), "shares", None) == one):
                told = "memory" if aspect == "shares" else aspect
                failures.append(Failure(name, told, f"expected {one}, got {other}"))
        failures += self._compare_values(name, want, have)
        return failures

    def _compare_plain(self, name: str, want: Any, have: Any) -> list[Failure]:
        if isinstance(want, float) and isinstance(have, float):
            pair = torch.tensor(want, dtype=torch.float32), torch.tensor(have, dtype=torch.float32)
            return self._compare_values(name, *pair)
        if type(want) is not type(have):
            detail = f"expected {_type_name(want)}, got {_type_name(have)}"
            return [
                Failure(
                    name, "missing" if have is None else "unexpected" if want is None else "value", detail
                )
            ]
        try:
            equal = bool(want == have)
        except Exception:  # an object that can't be compared says nothing
            return []
        # Objects without an equality of their own are other ones in each run.
        if equal or not any("__eq__" in vars(cls) for cls in type(want).__mro__[:-1]):
            return []
        return [Failure(name, "value", f"expected {want!r}, got {have!r}")]

    def _compare_values(self, name: str, want: torch.Tensor, have: torch.Tensor) -> list[Failure]:
        exact = _tensor_of(self.exact, name)
        again = _tensor_of(self.again, name)
        if want.layout is not torch.strided:
            want, have = want.to_dense(), have.to_dense()
            exact = None if exact is None else exact.to_dense()
            again = None if again is None else again.to_dense()
        if exact is not None and exact.shape != want.shape:
            exact = None
        if not (want.is_floating_point() or want.is_complex()):
            if torch.equal(want, have) or (exact is not None and not torch.equal(exact, want)):
                return []
            if again is not None and again.shape == want.shape and not torch.equal(again, want):
                return []
            return [Failure(name, "value", _unequal(want, have))]
        if torch.equal(want, have):
            return []
        return self._compare_floats(name, want, have, exact, again)

    def _compare_floats(
        self,
        name: str,
        want: torch.Tensor,
        have: torch.Tensor,
        exact: torch.Tensor | None,
        again: torch.Tensor | None,
    ) -> list[Failure]:
        eager, compiled = _wide(want), _wide(have)
        finite = torch.isfinite(eager)
        same = (eager == compiled) | (torch.isnan(eager) & torch.isnan(compiled))
        if not bool((finite == torch.isfinite(compiled)).all()) or not bool(same[~finite].all()):
            count = int((~same & ~(finite & torch.isfinite(compiled))).sum())
            return [
                Failure(
                    name,
                    "value",
                    f"{count} elements are NaN or infinite where eager's are not, or not where they are",
                )
            ]
        reference = eager
        own = 0.0
        if exact is not None:
            wide = _wide(exact)
            own = _distance(eager, wide, finite)
            largest = _largest(wide, finite)
            # A quantity that is zero but for rounding has a float64 value far smaller than eager's.
            diverged = own > DIVERGED * largest and largest > DIVERGED * _largest(eager, finite)
            if math.isfinite(own) and not diverged:
                reference = wide
            else:
                own = 0.0
        if again is not None and again.shape == want.shape:
            own = max(own, _distance(_wide(again), eager, finite))
        absolute, relative = floors(want.dtype)
        allowed = max(absolute, relative * _largest(reference, finite), EAGER_FACTOR * own)
        error = _distance(compiled, reference, finite)
        if error <= allowed:
            return []
        detail = f"off by {error:.1e}; {allowed:.1e} is allowed, eager itself is off by {own:.1e}"
        return [Failure(name, "value", detail, error, allowed, own)]


def _tensor_of(observation: Observation | None, name: str) -> torch.Tensor | None:
    quantity = (observation or {}).get(name)
    value = None if quantity is None else quantity.value
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return value if isinstance(value, torch.Tensor) else None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.to(torch.float64)


def _largest(tensor: torch.Tensor, finite: torch.Tensor) -> float:
    chosen = tensor[finite]
    return float(chosen.abs().max()) if chosen.numel() else 0.0


def _distance(one: torch.Tensor, other: torch.Tensor, finite: torch.Tensor) -> float:
    return _largest(one - other, finite)


def _unequal(want: torch.Tensor, have: torch.Tensor) -> str:
    if want.numel() == 1:
        return f"expected {want.item()}, got {have.item()}"
    return f"{int((want != have).sum())} of {want.numel()} elements differ"


def _type_name(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
