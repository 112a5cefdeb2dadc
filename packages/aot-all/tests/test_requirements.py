"""aot-all is right when everything that it requires is there, fits, and shows its backends."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest
from packaging.requirements import Requirement

import aot_all

REQUIRED = [
    requirement
    for requirement in map(Requirement, importlib.metadata.requires("aot-all") or [])
    if requirement.marker is None
]


def test_version_is_the_distributions():
    assert aot_all.__version__ == importlib.metadata.version("aot-all")


def test_requires_the_family():
    family = {"aot-core", "aot-cudagraphs", "aot-partition", "aot-registry", "aot-ts-fusion", "aot-xla"}
    assert family <= {requirement.name for requirement in REQUIRED}


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda requirement: requirement.name)
def test_requirement_is_installed_in_range_and_imports(requirement):
    assert importlib.metadata.version(requirement.name) in requirement.specifier
    importlib.import_module(requirement.name.replace("-", "_"))


def test_backends_of_requirements_are_declared():
    """Whoever installs aot-all can name the backends of every package that has any."""
    visible = {entry.name for entry in importlib.metadata.entry_points(group="torch_dynamo_backends")}
    for requirement in REQUIRED:
        declared = importlib.metadata.distribution(requirement.name).entry_points
        assert {entry.name for entry in declared if entry.group == "aot_backends"} <= visible
    assert {
        "aot_core_eager",
        "aot_inductor_debug",
        "aot_mem_efficient",
        "aot_ts_fusion",
        "nvprims_aten",
        "nvprims_nvfuser",
    } <= visible


def test_only_the_extra_holds_torch_to_the_line_of_torch_xla():
    """Without it, everything installs beside a torch for which there is no torch_xla."""
    declared = map(Requirement, importlib.metadata.requires("aot-xla") or [])
    by_extra = {r.name: str(r.marker) for r in declared if r.name in ("torch", "torch_xla", "torch-xla")}
    assert by_extra and all("extra" in marker for marker in by_extra.values()), by_extra


def extras_of(distribution: str) -> set[str]:
    return set(importlib.metadata.metadata(distribution).get_all("Provides-Extra") or [])


def test_extras_are_those_of_the_packages_that_have_them():
    """What an extra forwards to exists under that name, and no wheel of nvFuser is left out."""
    forwarded = {}
    for requirement in map(Requirement, importlib.metadata.requires("aot-all") or []):
        if requirement.marker is not None:
            assert requirement.extras <= extras_of(requirement.name), requirement
            forwarded.setdefault(requirement.name, set()).update(requirement.extras)
    nvfuser = {extra for extra in extras_of("aot-partition") if extra.startswith("nvfuser-")}
    assert nvfuser and nvfuser <= forwarded["aot-partition"]
    assert nvfuser <= extras_of("aot-all")
