"""The registry, torch, and the real backends that are installed, each asked about the same things."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_site import GOOD_BACKEND, FakeSite

from aot_registry import _compat
from aot_registry.discovery import declarations, discover
from aot_registry.loading import check_info, load_info

OURS = [declaration for declaration in declarations().values() if declaration.distribution.startswith("aot-")]
PROJECTS = sorted(Path(__file__).parents[2].glob("*/pyproject.toml"))

needs_aot_core = pytest.mark.skipif(
    "aot_core_eager" not in declarations(),
    reason="waits for an installed aot-core: entry points are metadata",
)


def run_python(source: str, *arguments: str) -> Any:
    """Run a program in a fresh process and return what it prints as JSON."""
    process = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@needs_aot_core
@pytest.mark.parametrize("declaration", OURS, ids=lambda declaration: declaration.name)
def test_installed_groups_agree(declaration: Any) -> None:
    assert declaration.info is not None and declaration.target is not None
    info = load_info(declaration)
    assert info is not None
    assert list(check_info(declaration, info)) == []
    assert info.summary and info.tags


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_declared_groups_agree(project: Path) -> None:
    tomllib: Any = pytest.importorskip("tomllib", reason="waits for Python 3.11")
    groups = tomllib.loads(project.read_text())["project"].get("entry-points", {})
    assert set(groups.get("torch_dynamo_backends", {})) == set(groups.get("aot_backends", {}))


@pytest.mark.parametrize(
    "use",
    [
        "import aot_registry; aot_registry.list_backends()",
        "import aot_registry; aot_registry.list_backends(exclude_tags=()); list(aot_registry.BACKENDS)",
        "from aot_registry.cli import main; main(['list', '--all'])",
        "from aot_registry.cli import main; main(['list', '--all', '--json'])",
        "import aot_registry.doctor.command, aot_registry.cli",
    ],
)
def test_listing_never_imports_torch(use: str) -> None:
    source = (
        "import contextlib, io, json, sys\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    exec({use!r})\n"
        "print(json.dumps([name for name in sys.modules if name.partition('.')[0] == 'torch']))\n"
    )
    assert run_python(source) == []


def test_public_names() -> None:
    package = importlib.import_module("aot_registry")
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'backend'"):
        _ = package.backend


@pytest.mark.slow
def test_names_of_torch_are_those_that_torch_registers() -> None:
    # Without the discovery of entry points, torch knows nothing but its own.
    source = (
        "import importlib.metadata, json\n"
        "importlib.metadata.entry_points = lambda **kwargs: importlib.metadata.EntryPoints()\n"
        "import torch.compiler\n"
        "print(json.dumps(torch.compiler.list_backends(())))\n"
    )
    names = run_python(source)
    assert "aot_eager" in names
    assert sorted(_compat.names_of_torch()) == names


@pytest.mark.slow
def test_what_the_diagnoses_say_of_torch(tmp_path: Path) -> None:
    """A name declared twice and a name of torch's, as torch itself treats them."""
    site = FakeSite(tmp_path)
    for letter in "ab":
        module = f"rival_{letter}"
        site.install(
            f"rival-{letter}",
            torch={"contested": f"{module}:backend"},
            modules={f"{module}.py": GOOD_BACKEND},
        )
    site.install("shadow", torch={"aot_eager": "shadow:backend"}, modules={"shadow.py": GOOD_BACKEND})
    source = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import aot_registry\n"
        "from torch._dynamo import lookup_backend\n"
        "ours, theirs = aot_registry.get_backend('contested'), lookup_backend('contested')\n"
        "print(json.dumps([ours is theirs, lookup_backend('aot_eager').__module__]))\n"
    )
    same, module = run_python(source, str(tmp_path))
    assert same
    assert module.startswith("torch.")


@pytest.mark.slow
def test_malformed_entry_points_as_torch_treats_them(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.install("sound", torch={"sound": "sound:backend"}, modules={"sound.py": GOOD_BACKEND})
    info = site.install("malformed", torch={"x": "y:z"})
    (info / "entry_points.txt").write_text("[anything]\nno equals sign\n")
    source = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import aot_registry\n"
        "try:\n    import torch\n"
        "except Exception as error:\n    found = type(error).__name__\n"
        "print(json.dumps([found, 'sound' in aot_registry.BACKENDS]))\n"
    )
    found, listed = run_python(source, str(tmp_path))
    # Whatever the standard library raises on the file.
    assert found != "ImportError"
    assert listed


@pytest.mark.slow
@needs_aot_core
def test_doctor_finds_the_real_backends_usable() -> None:
    source = "import sys\nfrom aot_registry.cli import main\nmain(['doctor', '--json'])\n"
    report = run_python(source)
    ours = [record for record in report["backends"] if record["distribution"] == "aot-core"]
    assert {record["backend"] for record in ours} == {"aot_core_eager", "aot_inductor_debug"}
    assert {record["status"] for record in ours} == {"usable"}
    assert all(record["found"].startswith("torch ") for record in ours)


@pytest.mark.slow
@needs_aot_core
def test_activation_puts_aot_core_eager_under_torchs_name() -> None:
    source = (
        "import json, torch, aot_core, aot_registry\n"
        "model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)\n"
        "with aot_registry.activate(override=('aot_eager',)), aot_core.record_reports() as reports:\n"
        "    compiled = torch.compile(model, backend='aot_eager')\n"
        "    result = compiled(x)\n"
        "same = torch.equal(result, model(x))\n"
        "with aot_core.record_reports() as later:\n"
        "    torch.compiler.reset()\n"
        "    torch.compile(model, backend='aot_eager')(x)\n"
        "print(json.dumps([[report.backend for report in reports], same, len(later)]))\n"
    )
    assert run_python(source) == [["aot_core_eager"], True, 0]


@needs_aot_core
def test_discovery_finds_no_problem_in_this_environment() -> None:
    ours = [package for package in discover(check_files=True) if package.name.startswith("aot-")]
    assert ours
    assert all(package.problems == () and package.missing_files == () for package in ours)
