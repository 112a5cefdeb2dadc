"""Options of a backend: from what a user passes to a frozen, checked `Settings`.

A backend declares its options as the fields of a frozen dataclass derived from `Settings`. The annotations
are the check: ``bool``, ``int``, ``float``, ``str``, ``Literal[...]``, unions of those, and anything else as
an ``isinstance`` test. A ``__post_init__`` may raise ``ValueError`` for what types can't say.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import json
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from aot_core.errors import InvalidOptionValueError, UnknownOptionError

__all__ = ["Settings", "options_variable", "parse_settings"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every backend of this family understands.

    Args:
        strict: Raise where the backend would otherwise fall back. ``AOT_STRICT=1`` sets it for all.
    """

    strict: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data; values that JSON can't hold become their ``repr``."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


S = TypeVar("S", bound=Settings)


def options_variable(backend: str) -> str:
    """Return the environment variable with a backend's options: ``aot_x`` → ``AOT_X_OPTIONS``."""
    return f"AOT_{backend.removeprefix('aot_').upper()}_OPTIONS"


def parse_settings(cls: type[S], options: Mapping[str, Any] | None, *, backend: str) -> S:
    """Check options and return them as an instance of ``cls``.

    The environment's ``AOT_<BACKEND>_OPTIONS`` (a JSON object) comes first, ``AOT_STRICT`` next, and
    ``options`` has the last word.

    Args:
        cls: The backend's settings class.
        options: What the user passed to ``torch.compile(options=...)``.
        backend: Its name, for messages and for the variable's name.

    Raises:
        UnknownOptionError: a key that no field has; names the closest one.
        InvalidOptionValueError: a value of another type, or not among the legal ones; names them.
    """
    given: dict[str, tuple[Any, str]] = {}
    for key, value in _from_environment(backend).items():
        given[key] = (value, options_variable(backend))
    if "AOT_STRICT" in os.environ:
        given["strict"] = (_flag(os.environ["AOT_STRICT"]), "AOT_STRICT")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOptionValueError(
            f"Backend {backend!r} expects options= to be a dictionary, got {type(options).__name__}."
        )
    for key, value in (options or {}).items():
        given[key] = (value, "options=")

    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    for key, (value, origin) in given.items():
        if key not in names:
            raise UnknownOptionError(_unknown(backend, key, names, origin))
        if not _accepts(hints[key], value):
            raise InvalidOptionValueError(
                f"Backend {backend!r} expects option {key!r} to be {_describe(hints[key])}, "
                f"got {value!r} (from {origin})."
            )
    try:
        return cls(**{key: value for key, (value, _) in given.items()})
    except ValueError as error:
        raise InvalidOptionValueError(f"Backend {backend!r} rejects its options: {error}.") from error


def _from_environment(backend: str) -> dict[str, Any]:
    variable = options_variable(backend)
    text = os.environ.get(variable, "")
    if not text.strip():
        return {}
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOptionValueError(
            f"{variable} must hold a JSON object such as '{{\"strict\": true}}', got {text!r} ({error})."
        ) from error
    if not isinstance(options, dict):
        raise InvalidOptionValueError(
            f"{variable} must hold a JSON object such as '{{\"strict\": true}}', got {text!r}."
        )
    return options


def _flag(text: str) -> bool:
    if text in ("", "0"):
        return False
    if text == "1":
        return True
    raise InvalidOptionValueError(f"AOT_STRICT must be 0 or 1, got {text!r}.")


def _unknown(backend: str, key: str, names: list[str], origin: str) -> str:
    close = difflib.get_close_matches(str(key), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"Backend {backend!r} has no option {key!r} (from {origin}).{hint} "
        f"Its options are: {', '.join(sorted(names))}."
    )


def _accepts(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(legal) and value == legal for legal in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return any(_accepts(arm, value) for arm in typing.get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return callable(value)
    container = origin if origin is not None else hint
    return isinstance(container, type) and isinstance(value, container)


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(legal) for legal in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(arm) for arm in typing.get_args(hint))
    if hint is type(None):
        return "None"
    if hint is bool:
        return "True or False"
    return getattr(hint, "__name__", str(hint))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return repr(value)
