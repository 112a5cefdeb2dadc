"""Every public name of a package stands in docs/reference."""

from __future__ import annotations

import importlib
import re

import pytest

from repository import PACKAGES, ROOT

REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
PUBLIC = [
    f"{package.module}.{name}"
    for package in PACKAGES
    for name in getattr(importlib.import_module(package.module), "__all__", ())
]


def test_there_are_public_names():
    assert {"aot_core.aot_autograd", "aot_registry.probe"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_in_the_reference(name):
    short = name.rpartition(".")[2]
    assert re.search(rf"(?<!\w){re.escape(name)}\b|`{re.escape(short)}`", REFERENCE), name
