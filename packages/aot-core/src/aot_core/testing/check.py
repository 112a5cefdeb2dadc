"""A check: one thing that a user of ``torch.compile`` relies on, as a function that can be run."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from aot_core.errors import AotError
from aot_core.testing.compare import assert_matches
from aot_core.testing.isolation import isolated
from aot_core.testing.subject import Backend, Subject

__all__ = ["BackendCheck", "Check", "UnknownCheckError", "all_checks", "check", "verify_names"]

Body = Callable[[Subject], Any]


class UnknownCheckError(AotError, ValueError):
    """A name that no conformance check has."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One capability, and how to find out whether a backend has it.

    Args:
        name: The capability, and the check's id in pytest.
        theme: The module it stands in: ``"autograd"``, ``"aliasing"``, …
        summary: One sentence that says what a user relies on.
        body: Does something with a `Subject` and returns what it observed, to be compared between the
            backend and eager; or raises.
        dtype: The `Subject.dtype` that it runs with.
        exact: Observed values must be eager's bit for bit.
    """

    name: str
    theme: str
    summary: str
    body: Body
    dtype: torch.dtype = torch.float32
    exact: bool = False

    def run(
        self,
        backend: Backend,
        *,
        options: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        """Try the backend.

        Raises:
            AssertionError: it does something else than eager.
            unittest.SkipTest: this PyTorch or device can't tell.
            Exception: whatever compiling or running raised.
        """
        device = torch.device(device)
        print(f"check {self.name!r}, seed {seed}")  # noqa: T201 - pytest shows it with a failure

        def observe(backend: Backend | None, wide: bool) -> Any:
            subject = Subject(backend, options if backend is not None else None, device, self.dtype, wide)
            with isolated(seed, device):
                return self.body(subject)

        # Eager comes first: a check that does not hold there says nothing about a backend.
        eager, wide = observe(None, False), observe(None, True)
        assert_matches(observe(backend, False), eager, wide, exact=self.exact)


_checks: dict[str, Check] = {}


def check(*, dtype: torch.dtype = torch.float32, exact: bool = False) -> Callable[[Body], Body]:
    """Register a function as a check: its name is the capability, its docstring the summary."""

    def register(body: Body) -> Body:
        name, theme = body.__name__, body.__module__.rpartition(".")[2]
        summary = (body.__doc__ or "").strip()
        if not summary or "\n" in summary:
            raise TypeError(f"check {name!r} must have a docstring of one line, got {summary!r}")
        if name in _checks:
            raise ValueError(f"two checks are named {name!r}: in {_checks[name].theme} and in {theme}")
        _checks[name] = Check(name, theme, summary, body, dtype, exact)
        return body

    return register


def all_checks() -> tuple[Check, ...]:
    """Return every check, theme by theme, in the order in which they are written."""
    from aot_core.testing import checks

    order = {theme: index for index, theme in enumerate(checks.THEMES)}
    return tuple(sorted(_checks.values(), key=lambda check: order[check.theme]))


def verify_names(names: Iterable[str], *, where: str) -> None:
    """Raise `UnknownCheckError` for the first name that no check has; names the closest one."""
    known = [check.name for check in all_checks()]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UnknownCheckError(
                f"{where} names {name!r}, and no check is called that.{hint} "
                f"There are {len(known)} of them: `python -m aot_core.testing --list`."
            )


@dataclasses.dataclass(frozen=True)
class BackendCheck:
    """A check and the backend it is for: what a test function gets. Call it to run it."""

    check: Check
    backend: Backend
    options: Mapping[str, Any] | None = None
    device: str = "cpu"
    seed: int = 0

    def __call__(self) -> None:
        """Run the check; see `Check.run` for what it raises."""
        self.check.run(self.backend, options=self.options, device=self.device, seed=self.seed)
