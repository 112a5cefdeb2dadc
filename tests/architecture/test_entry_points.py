"""A backend is declared twice, for torch and for the registry: both must say the same."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest

from repository import PACKAGES

DECLARED = [
    (package, name, reference)
    for package in PACKAGES
    for name, reference in package.entry_points("aot_backends").items()
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_both_groups_hold_the_same_names(package):
    assert package.entry_points("torch_dynamo_backends").keys() == package.entry_points("aot_backends").keys()


def test_no_name_is_declared_by_two_packages():
    names = [name for _, name, _ in DECLARED]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("package", "name", "reference"),
    DECLARED,
    ids=[f"{package.name}-{name}" for package, name, _ in DECLARED],
)
def test_info_agrees_with_the_entry_point(package, name, reference):
    module, _, attribute = reference.partition(":")
    info = getattr(importlib.import_module(module), attribute)
    assert info.name == name
    assert info.target == package.entry_points("torch_dynamo_backends")[name]
    assert info.target.partition(".")[0] == package.module


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_installed_metadata_is_the_folders(package):
    """What was built and installed declares what the folder declares: no stale wheel, no other copy."""
    distribution = importlib.metadata.distribution(package.name)
    for group in ("aot_backends", "torch_dynamo_backends"):
        installed = {entry.name: entry.value for entry in distribution.entry_points if entry.group == group}
        assert installed == package.entry_points(group)
