"""Which installed distributions declare backends, read from their metadata alone.

Two entry-point groups are read. ``torch_dynamo_backends`` is torch's own: its values are the backend objects.
``aot_backends`` describes them: its values are `aot_core.protocol.BackendInfo` objects, in modules that
import without torch. Nothing here imports the code of any distribution::

    site-packages/*.dist-info/{entry_points.txt,METADATA}
        ──> Package(name, version, declarations=(Declaration(name, info, target), ...), problems)

The standard library's ``entry_points()`` raises if a single installed distribution has a malformed
``entry_points.txt``, and with it ``import torch``. Here each distribution is read by itself, and one that
can't be read becomes a `Problem`.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from aot_registry.problems import Problem

__all__ = ["INFO_GROUP", "TARGET_GROUP", "Declaration", "Package", "declarations", "discover"]

INFO_GROUP = "aot_backends"
TARGET_GROUP = "torch_dynamo_backends"


@dataclasses.dataclass(frozen=True)
class Declaration:
    """One name that one distribution declares, in one of the groups or in both.

    Args:
        name: Name of the entry point, which is what the user passes to ``torch.compile(backend=...)``.
        distribution: Name of the distribution that declares it.
        version: Its version, ``"unknown"`` where the metadata don't tell.
        info: ``"module:attribute"`` of its `BackendInfo`, or None if ``aot_backends`` has no such name.
        target: ``"module:attribute"`` of the backend, or None if ``torch_dynamo_backends`` has no such name.
    """

    name: str
    distribution: str
    version: str
    info: str | None
    target: str | None

    @property
    def owner(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def entry_point(self) -> str:
        """The line of ``entry_points.txt`` that declares it, for messages."""
        return f"{self.name} = {self.target or self.info}"


@dataclasses.dataclass(frozen=True)
class Package:
    """An installed distribution that declares backends, or that can't be read well enough to tell.

    Args:
        name: Name of the distribution.
        version: Its version, or ``"unknown"``.
        declarations: What it declares, by name.
        requires: Its requirements, each a PEP 508 string.
        problems: What is wrong with its metadata.
        missing_files: Modules that it installed, says its RECORD, and that are gone.
    """

    name: str
    version: str
    declarations: tuple[Declaration, ...] = ()
    requires: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    missing_files: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def discover(*, check_files: bool = False) -> list[Package]:
    """Return every distribution on ``sys.path`` that declares a backend, in the order of ``sys.path``.

    As in the standard library, the first of two distributions with one name hides the second.

    Args:
        check_files: Look also whether the modules that each one installed are still there.
    """
    seen: set[str] = set()
    packages = []
    for distribution in importlib.metadata.distributions():
        name = _name(distribution)
        if canonicalize_name(name) in seen:
            continue
        seen.add(canonicalize_name(name))
        package = _read(distribution, name, check_files)
        if package is not None:
            packages.append(package)
    return packages


def declarations() -> dict[str, Declaration]:
    """Return what is declared, by name; of two distributions with one name, the one that torch would take."""
    found: dict[str, Declaration] = {}
    for package in discover():
        for declaration in package.declarations:
            found.setdefault(declaration.name, declaration)
    return found


def _name(distribution: importlib.metadata.Distribution) -> str:
    # The folder's name is right even where METADATA is gone, and costs no parsing of METADATA. Only the
    # path-based kind has a folder.
    path = getattr(distribution, "_path", None)
    if path is not None:
        stem, suffix = os.path.splitext(os.path.basename(str(path)))
        if suffix in (".dist-info", ".egg-info"):
            return stem.partition("-")[0]
    try:
        return distribution.metadata["Name"] or "unknown"
    except Exception:
        return "unknown"


def _read(distribution: importlib.metadata.Distribution, name: str, check_files: bool) -> Package | None:
    try:
        text = distribution.read_text("entry_points.txt") or ""
    except Exception as error:
        return Package(
            name, "unknown", problems=(_unreadable(distribution, name, "entry_points.txt", error),)
        )
    if INFO_GROUP not in text and TARGET_GROUP not in text:
        return _read_stranger(distribution, name) if text else None

    problems: list[Problem] = []
    version = "unknown"
    requires: tuple[str, ...] = ()
    try:
        # Up to Python 3.13 the metadata of a distribution without METADATA are empty, later an error.
        if not distribution.metadata["Name"]:
            raise ValueError("it has no field Name")
        name = distribution.metadata["Name"]
        version = distribution.version or "unknown"
        requires = tuple(distribution.requires or ())
    except Exception as error:
        problems.append(_unreadable(distribution, name, "METADATA", error))
    try:
        entry_points = list(distribution.entry_points)
    except Exception as error:
        problems.append(_unreadable(distribution, name, "entry_points.txt", error))
        entry_points = []
    return Package(
        name,
        version,
        tuple(_pair(entry_points, name, version)),
        requires,
        tuple(problems),
        _missing_files(distribution) if check_files else (),
    )


def _read_stranger(distribution: importlib.metadata.Distribution, name: str) -> Package | None:
    """Return a package only if its entry points, of other groups, are such that nobody can read them."""
    try:
        list(distribution.entry_points)
    except Exception as error:
        return Package(
            name, "unknown", problems=(_unreadable(distribution, name, "entry_points.txt", error),)
        )
    return None


def _pair(
    entry_points: Iterable[importlib.metadata.EntryPoint], distribution: str, version: str
) -> Iterator[Declaration]:
    info: dict[str, str] = {}
    target: dict[str, str] = {}
    for entry_point in entry_points:
        group = {INFO_GROUP: info, TARGET_GROUP: target}.get(entry_point.group)
        if group is not None:
            group.setdefault(entry_point.name, entry_point.value)
    for name in sorted(info.keys() | target.keys()):
        yield Declaration(name, distribution, version, info.get(name), target.get(name))


def _missing_files(distribution: importlib.metadata.Distribution) -> tuple[str, ...]:
    # Not by `distribution.files`, which leaves out missing files from Python 3.12 on.
    try:
        record = distribution.read_text("RECORD") or ""
        modules = [row[0] for row in csv.reader(record.splitlines()) if row and row[0].endswith(".py")]
        return tuple(module for module in modules if not Path(str(distribution.locate_file(module))).exists())
    except Exception:
        # No RECORD that can be read: then nothing is known, and loading will tell.
        return ()


def _unreadable(
    distribution: importlib.metadata.Distribution, name: str, file: str, error: Exception
) -> Problem:
    consequence = ""
    if file == "entry_points.txt":
        # torch reads the entry points of all distributions at once, first to load device backends on import.
        consequence = "; while it is so, `import torch` fails with the same error"
    return Problem(
        "broken-metadata",
        f"{file} of {name} can't be read ({type(error).__name__}: {error}){consequence}",
        f"Install it again: pip install --force-reinstall {name}; or remove it: pip uninstall {name}. If pip "
        f"can't, delete {getattr(distribution, '_path', 'its .dist-info folder')}.",
    )
