"""Does the installed nvFuser fit the installed torch? Read from metadata, before either is imported.

A wheel of nvFuser is built for one minor version of torch, one version of CUDA and one of Python, and says so in its
name alone: nothing keeps pip from installing one that doesn't fit. Importing it then ends in an undefined symbol, in a
module that is not there, or in nothing at all: one for another CUDA is imported, and is wrong.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from aot_core.protocol import Availability

__all__ = [
    "WHEELS",
    "Environment",
    "Wheel",
    "find_obstacle",
    "has_toolkit",
    "judge",
    "read_environment",
]


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A distribution of nvFuser.

    Args:
        name: ``"nvfuser-cu128-torch210"``.
        cuda: ``"12.8"``.
        torch: ``"2.10"``; empty for one whose name does not say for which torch it is.
        pythons: ``("3.10", "3.12")``.
        version: Its release.
    """

    name: str
    cuda: str
    torch: str
    pythons: tuple[str, ...]
    version: str


def _wheel(cuda: str, torch: str, version: str) -> Wheel:
    name = f"nvfuser-cu{cuda.replace('.', '')}-torch{torch.replace('.', '')}"
    return Wheel(name, cuda, torch, ("3.10", "3.12"), version)


WHEELS = (
    _wheel("12.6", "2.10", "0.2.36.dev20260301"),
    _wheel("12.8", "2.10", "0.2.36.dev20260301"),
    _wheel("13.0", "2.10", "0.2.36.dev20260301"),
)
"""The wheels that fit a torch that this package allows, as its extras pin them. There is none for a later torch."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """What is installed.

    Args:
        python: ``"3.12"``.
        torch: Version of torch, ``"2.10.0+cu128"``; None if it is not installed.
        cuda: Version of CUDA that torch was built for, ``"12.8"``; None for a build for CPUs.
        wheels: The distributions of nvFuser, each with the version of Python that it was built for.
    """

    python: str
    torch: str | None
    cuda: str | None
    wheels: tuple[Wheel, ...]


def read_environment() -> Environment:
    """Read what is installed from metadata. Imports nothing."""
    try:
        torch: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = None
    wheels = [wheel for each in importlib.metadata.distributions() if (wheel := _installed(each)) is not None]
    return Environment(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        torch=torch,
        cuda=_cuda_of_torch(),
        wheels=tuple(sorted(set(wheels), key=lambda wheel: wheel.name)),
    )


def _installed(distribution: importlib.metadata.Distribution) -> Wheel | None:
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    match = re.fullmatch(r"nvfuser-cu(\d+)(\d)(?:-torch(\d)(\d+))?", name)
    if match is None:
        return None
    major, minor, torch_major, torch_minor = match.groups()
    torch = f"{torch_major}.{torch_minor}" if torch_major else ""
    tags = re.findall(r"^Tag: cp(\d)(\d+)-", distribution.read_text("WHEEL") or "", flags=re.MULTILINE)
    pythons = tuple(dict.fromkeys(f"{first}.{rest}" for first, rest in tags))
    return Wheel(name, f"{major}.{minor}", torch, pythons, distribution.version)


def _cuda_of_torch() -> str | None:
    """Read ``torch.version.cuda`` from its file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    if not path.exists():
        return None
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        if any(isinstance(target, ast.Name) and target.id == "cuda" for target in targets):
            value = getattr(statement, "value", None)
            found = value.value if isinstance(value, ast.Constant) else None
            return found if isinstance(found, str) else None
    return None


TOOLKIT = Path("/usr/local/cuda/include")
"""Where nvFuser's kernels look for headers of a CUDA toolkit. It is written into nvFuser."""


def has_toolkit(cuda: str | None, folder: Path = TOOLKIT) -> bool:
    """Tell whether the headers that kernels for sorting and scanning include are there, of a version of CUDA.

    Args:
        cuda: ``"12.8"``. Newer headers than NVRTC's own do not compile.
        folder: Where to look.
    """
    header = folder / "cuda.h"
    if cuda is None or not header.exists():
        return False
    match = re.search(r"#define CUDA_VERSION (\d+)", header.read_text(encoding="utf-8", errors="replace"))
    if match is None or f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" != cuda:
        return False
    block = Path("cub/block/block_radix_sort.cuh")
    return (folder / block).exists() or (folder / "cccl" / block).exists()


def judge(environment: Environment) -> Availability:
    """Tell whether what is installed fits together.

    Returns:
        Usable, with what was found; or the first thing that does not fit, and what to type.
    """
    torch, python = environment.torch, environment.python
    if torch is None:
        return Availability(False, "torch is not installed", f"{_install(None, None, python)}.")
    minor = ".".join(torch.split("+")[0].split(".")[:2])
    remedy = f"{_install(minor, environment.cuda, python)}."
    if environment.cuda is None:
        return Availability(
            False,
            f"torch {torch} is built for CPUs, and nvFuser needs one that is built for CUDA (its import would end in "
            "libc10_cuda.so not found)",
            remedy,
        )
    if not environment.wheels:
        return Availability(
            False, f"nvFuser is not installed; torch is {torch}, CUDA {environment.cuda}", remedy
        )
    if len(environment.wheels) > 1:
        names = " ".join(wheel.name for wheel in environment.wheels)
        return Availability(
            False,
            f"{len(environment.wheels)} variants of nvFuser are installed ({names.replace(' ', ', ')}): they share the "
            "module nvfuser_direct, so that the last one overwrote parts of the others",
            f"python -m pip uninstall {names}, then {remedy}",
        )
    (wheel,) = environment.wheels
    what = f"{wheel.name} {wheel.version}"
    if wheel.torch and wheel.torch != minor:
        return Availability(
            False,
            f"{what} is built for torch {wheel.torch}, and torch {torch} is installed: its import would end in an "
            "undefined symbol",
            f"python -m pip uninstall {wheel.name}, then {remedy}",
        )
    if wheel.cuda != environment.cuda:
        return Availability(
            False,
            f"{what} is built for CUDA {wheel.cuda}, and torch {torch} for CUDA {environment.cuda}: it would be "
            "imported, and load two versions of CUDA",
            f"python -m pip uninstall {wheel.name}, then {remedy}",
        )
    if wheel.pythons and python not in wheel.pythons:
        return Availability(
            False,
            f"{what} is built for Python {', '.join(wheel.pythons)}, and this is Python {python}: its import would "
            "end in no module named nvfuser_direct._C_DIRECT",
            remedy,
        )
    return Availability(True, f"{what}, torch {torch}, CUDA {environment.cuda}")


def _install(torch: str | None, cuda: str | None, python: str) -> str:
    """Return what to type for a wheel that fits, and say what else would have to change for there to be one."""
    fitting = [wheel for wheel in WHEELS if wheel.cuda == cuda] or [
        wheel for wheel in WHEELS if wheel.cuda == "12.8"
    ]
    wheel = fitting[0]
    command = f'python -m pip install "aot-partition[{wheel.name}]"'
    needs = []
    if torch != wheel.torch:
        needs.append(f"torch {wheel.torch}")
    if cuda != wheel.cuda:
        needs.append(f"a build of it for CUDA {' or '.join(_cudas())}")
    if python not in wheel.pythons:
        needs.append(f"Python {' or '.join(wheel.pythons)}")
    if not needs:
        return command
    return f"{command} in an environment with {' and '.join(needs)}: wheels of nvFuser exist for no other"


def _cudas() -> Iterable[str]:
    return (wheel.cuda for wheel in WHEELS)


def find_obstacle() -> Availability:
    """Tell whether nvFuser can compile and run here: wheels first, then the import, then the device."""
    found = judge(read_environment())
    if not found.usable:
        return found
    import torch

    if not torch.cuda.is_available():
        return Availability(
            False, f"{found.reason}, but no CUDA device", "Run it on a machine with an NVIDIA GPU."
        )
    try:
        importlib.import_module("nvfuser_direct")
    except ImportError as error:
        return Availability(
            False, f"{found.reason}: its import failed with {error}", "Install the wheel anew."
        )
    name = torch.cuda.get_device_name()
    major, minor = torch.cuda.get_device_capability()
    if major < 7:
        return Availability(
            False,
            f"{name} is of compute capability {major}.{minor}, and nvFuser needs 7.0",
            "Run it on a newer GPU.",
        )
    return Availability(True, f"{found.reason}, {name}")
