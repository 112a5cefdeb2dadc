from __future__ import annotations

import copy
import pickle

import pytest

from aot_core import errors

CLASSES = [getattr(errors, name) for name in errors.__all__ if name != "AotError"]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_names_its_page_and_derives_from_a_builtin(kind: type[errors.AotError]) -> None:
    error = kind("It broke.")
    assert str(error) == f"It broke. See errors/{kind.slug()}"
    assert kind.slug() == kind.slug().lower()
    assert any(base.__module__ == "builtins" and base is not Exception for base in kind.__mro__[:-3])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_copy_says_the_same(kind: type[errors.AotError]) -> None:
    error = kind("It broke.")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
