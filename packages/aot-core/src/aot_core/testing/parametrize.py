"""The checks as pytest parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aot_core.testing.check import BackendCheck, all_checks, verify_names
from aot_core.testing.subject import Backend

__all__ = ["parametrize_backend_checks"]

F = TypeVar("F", bound=Callable[..., Any])


def parametrize_backend_checks(
    backend: Backend,
    *,
    expected_failures: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> Callable[[F], F]:
    """Turn a test function into one test per conformance check.

    The function takes one argument, ``check``, and calls it::

        @parametrize_backend_checks(
            "my_backend", expected_failures={"double_backward": "AOTAutograd has none: it raises"}
        )
        def test_conformance(check):
            check()

    A check that is expected to fail is an ``xfail`` with that reason, and if it passes it fails the run, so
    that the list stays true.

    Args:
        backend: A name that ``torch.compile`` knows, or the backend itself.
        expected_failures: Reason by name of check.
        options: ``torch.compile(options=...)``.
        device: Where modules and data live.
        seed: For everything random; each test prints it.

    Raises:
        UnknownCheckError: ``expected_failures`` holds a name that no check has; names the closest one.
        ImportError: pytest is not installed.
    """
    try:
        import pytest
    except ImportError as error:
        raise ImportError(
            "parametrize_backend_checks makes pytest parameters, and pytest is not installed: "
            "`pip install pytest`. Without it, use capability_table or `python -m aot_core.testing`."
        ) from error

    expected = dict(expected_failures or {})
    verify_names(expected, where="expected_failures")
    parameters = []
    for check in all_checks():
        # strict: what is expected to fail and passes fails the run, whatever the user's configuration says.
        known = (
            [pytest.mark.xfail(reason=expected[check.name], strict=True)] if check.name in expected else []
        )
        case = BackendCheck(check, backend, options, device, seed)
        parameters.append(pytest.param(case, id=check.name, marks=known))
    decorate: Callable[[F], F] = pytest.mark.parametrize("check", parameters)
    return decorate
