from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Literal

import pytest

from aot_core import Settings, parse_settings
from aot_core.errors import InvalidOptionValueError, UnknownOptionError
from aot_core.settings import options_variable


@dataclasses.dataclass(frozen=True)
class Example(Settings):
    check: Literal["none", "all"] = "none"
    limit: int = 3
    budget: float | str | None = None
    hook: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError("limit must not be negative")


def parse(options: dict[str, Any] | None = None) -> Example:
    return parse_settings(Example, options, backend="aot_example")


def test_defaults_and_given_values() -> None:
    assert parse() == Example()
    assert parse({"check": "all", "limit": 5, "budget": 1, "hook": int}) == Example(False, "all", 5, 1, int)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"chek": "all"}, UnknownOptionError, ["'chek'", "Did you mean 'check'", "budget, check"]),
        ({"check": "some"}, InvalidOptionValueError, ["'none', 'all'", "'some'"]),
        ({"check": True}, InvalidOptionValueError, ["'none', 'all'"]),
        ({"limit": True}, InvalidOptionValueError, ["int", "True"]),
        ({"limit": 1.0}, InvalidOptionValueError, ["int", "1.0"]),
        ({"limit": -1}, InvalidOptionValueError, ["limit must not be negative"]),
        ({"budget": []}, InvalidOptionValueError, ["float or str or None"]),
        ({"strict": 1}, InvalidOptionValueError, ["True or False"]),
        ({"hook": 3}, InvalidOptionValueError, ["'hook'"]),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        parse(options)
    for word in ["'aot_example'", "errors/", *words]:
        assert word in str(caught.value)


def test_options_that_are_no_mapping() -> None:
    with pytest.raises(InvalidOptionValueError, match="dictionary, got list"):
        parse_settings(Example, ["strict"], backend="aot_example")  # type: ignore[arg-type]


def test_the_environment_comes_first_and_options_have_the_last_word() -> None:
    os.environ["AOT_EXAMPLE_OPTIONS"] = '{"limit": 7, "check": "all"}'
    os.environ["AOT_STRICT"] = "1"
    assert parse({"limit": 8}) == Example(strict=True, check="all", limit=8)
    assert not parse({"strict": False}).strict


@pytest.mark.parametrize("text", ["{", "[1]", '{"limt": 1}', '{"limit": "x"}'])
def test_a_bad_variable_is_named(text: str) -> None:
    os.environ["AOT_EXAMPLE_OPTIONS"] = text
    with pytest.raises((InvalidOptionValueError, UnknownOptionError), match="AOT_EXAMPLE_OPTIONS"):
        parse()


def test_a_bad_strict_flag_is_named() -> None:
    os.environ["AOT_STRICT"] = "yes"
    with pytest.raises(InvalidOptionValueError, match="AOT_STRICT must be 0 or 1"):
        parse()


def test_variable_names() -> None:
    assert options_variable("aot_mem_efficient") == "AOT_MEM_EFFICIENT_OPTIONS"
    assert options_variable("nvprims_nvfuser") == "AOT_NVPRIMS_NVFUSER_OPTIONS"


def test_settings_as_plain_data() -> None:
    assert parse({"hook": int}).to_dict()["hook"] == "<class 'int'>"
