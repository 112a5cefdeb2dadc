"""Fake distributions: a folder with ``.dist-info`` and modules, on a path that holds nothing else.

Nothing in a fake imports torch, and torch is out of reach of it, so a probe takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import packaging
import pytest

import aot_core
import aot_registry

ENTRY_POINT_GROUPS = ("torch_dynamo_backends", "aot_backends")

GOOD_BACKEND = "def backend(gm, example_inputs):\n    return gm.forward\n"


class FakeSite:
    """A site-packages folder of fakes, which is all that discovery and probes can see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, modules: Mapping[str, str]) -> None:
        for name, source in modules.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        importlib.invalidate_caches()

    def install(
        self,
        name: str,
        *,
        version: str = "1.0",
        torch: Mapping[str, str] | None = None,
        aot: Mapping[str, str] | None = None,
        modules: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
    ) -> Path:
        """Install a distribution with entry points for torch and for us, and return its ``.dist-info``."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        text = ""
        for group, entries in zip(ENTRY_POINT_GROUPS, (torch, aot), strict=True):
            if entries:
                text += f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        (info / "entry_points.txt").write_text(text)
        files = [*(modules or {}), *(f"{info.name}/{file}" for file in ("METADATA", "entry_points.txt"))]
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files) + f"{info.name}/RECORD,,\n")
        self.write(modules or {})
        return info

    def install_good(self, name: str, backend: str, *, tags: Sequence[str] = (), **extra: object) -> None:
        """Install a distribution with one sound and described backend."""
        module = f"{name.replace('-', '_')}_module"
        fields = {"name": backend, "target": f"{module}:backend", "summary": f"The {backend} of {name}"}
        fields |= {"tags": tuple(tags), **extra}
        self.install(
            name,
            torch={backend: f"{module}:backend"},
            aot={backend: f"{module}_info:INFO"},
            modules={
                f"{module}.py": GOOD_BACKEND,
                f"{module}_info.py": f"from aot_core.protocol import BackendInfo\nINFO = "
                f"BackendInfo(**{fields!r})\n",
            },
        )


@contextlib.contextmanager
def isolated_site(folder: Path) -> Iterator[FakeSite]:
    """Make an empty site of fakes, with nothing beside it but what is under test and the standard library."""
    fakes, libraries = folder / "site", folder / "libraries"
    fakes.mkdir()
    libraries.mkdir()
    for package in (aot_core, aot_registry, packaging):
        assert package.__file__ is not None
        (libraries / package.__name__).symlink_to(Path(package.__file__).parent, target_is_directory=True)
    standard = sysconfig.get_path("stdlib")
    kept = [path for path in sys.path if path.startswith(standard) and "site-packages" not in path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(fakes), str(libraries), *kept])
        yield FakeSite(fakes)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(fakes)):
            del sys.modules[name]
