"""What every package has: metadata, files that a user and a release need, and sibling ranges."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from repository import MODULES, NAMES, PACKAGES, ROOT, load_toml

each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_there_are_packages():
    assert {"aot-core", "aot-all"} <= NAMES


def test_a_folder_is_a_package_or_the_template():
    """What has no pyproject.toml is left out by nox and by all tests here: one must not be left out by accident."""
    folders = {path.name for path in (ROOT / "packages").iterdir() if path.is_dir()}
    assert folders - NAMES == {"_template"}


@each_package
def test_metadata(package):
    project = package.project
    assert project["name"] == package.name
    assert project["dynamic"] == ["version"]
    assert project["license"] == "BSD-3-Clause"
    assert project["requires-python"] == ">=3.10"
    prefix = "Programming Language :: Python :: "
    stated = [line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix)]
    assert [version for version in stated if "." in version] == PYTHONS


@each_package
def test_version_is_semantic(package):
    about = (package.source / "__about__.py").read_text(encoding="utf-8")
    found = re.fullmatch(r'__version__ = "(\d+\.\d+\.\d+)"\n', about)
    assert found, about
    assert str(Version(found[1])) == found[1]


@each_package
def test_files(package):
    assert (package.source / "py.typed").exists()
    assert (package.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (package.folder / "changelog.d").is_dir()
    assert list((package.folder / "tests").rglob("test_*.py")), "a package without tests"


@each_package
def test_readme_has_install_line_and_a_use(package):
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {package.name}\n")
    assert re.search(rf'^(python -m )?pip install "?{package.name}(\[\w+\])?"?$', readme, re.MULTILINE)
    assert "```python\n" in readme


@each_package
def test_changelog_is_towncriers(package):
    settings = load_toml(package.folder / "pyproject.toml")["tool"]["towncrier"]
    changelog = (package.folder / settings["filename"]).read_text(encoding="utf-8")
    assert settings["start_string"] in changelog
    assert settings["package"] == package.module
    fragments = [path for path in (package.folder / settings["directory"]).iterdir() if path.suffix == ".md"]
    for fragment in fragments:
        kinds = "feature|bugfix|doc|removal|misc"
        assert re.fullmatch(rf"[+\w-]+\.({kinds})(\.\d+)?\.md", fragment.name), fragment


@each_package
def test_siblings_are_required_by_range(package):
    for requirement in (*package.requirements, *package.extra_requirements):
        if canonicalize_name(requirement.name) in NAMES:
            operators = sorted(each.operator for each in requirement.specifier)
            assert operators == ["<", ">="], f"{requirement}: give a lower and an upper bound, never =="


@each_package
def test_torch_range(package):
    for requirement in package.requirements:
        if requirement.name == "torch":
            lowest = "2.9" if package.name in ("aot-core", "aot-xla") else "2.10"
            assert str(requirement.specifier) == str(type(requirement.specifier)(f">={lowest},<2.16"))


def test_core_needs_only_torch():
    (core,) = (package for package in PACKAGES if package.name == "aot-core")
    assert [requirement.name for requirement in core.requirements] == ["torch"]


def test_all_requires_every_package():
    (everything,) = (package for package in PACKAGES if package.name == "aot-all")
    assert {requirement.name for requirement in everything.requirements} == NAMES - {"aot-all"}


def test_import_contracts_cover_every_package():
    settings = load_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]
    assert set(settings["root_packages"]) == MODULES
    layered = {name for line in settings["contracts"][0]["layers"] for name in re.findall(r"\w+", line)}
    assert layered >= MODULES
