"""The packages of this repository, read from disk: a new folder under packages/ is covered by existing."""

from __future__ import annotations

import dataclasses
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def load_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@dataclasses.dataclass(frozen=True)
class Package:
    """One folder of packages/."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.module

    @cached_property
    def project(self) -> dict[str, Any]:
        return load_toml(self.folder / "pyproject.toml")["project"]

    @property
    def requirements(self) -> list[Requirement]:
        """What it needs at run time, extras left out."""
        return [Requirement(text) for text in self.project.get("dependencies", [])]

    @property
    def extra_requirements(self) -> list[Requirement]:
        extras = self.project.get("optional-dependencies", {})
        return [Requirement(text) for texts in extras.values() for text in texts]

    def entry_points(self, group: str) -> dict[str, str]:
        return self.project.get("entry-points", {}).get(group, {})

    def python_files(self, *folders: str) -> list[Path]:
        return sorted(path for folder in folders for path in (self.folder / folder).rglob("*.py"))


PACKAGES = [Package(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
NAMES = {package.name for package in PACKAGES}
MODULES = {package.module for package in PACKAGES}
