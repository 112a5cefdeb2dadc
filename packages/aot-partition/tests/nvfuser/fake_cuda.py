"""A CUDA that is imaginary: built from two files of C, and put in front of the real libraries of a process.

Under it nvFuser does all it does before a launch: it segments, schedules, generates code and compiles that with NVRTC.
Launches do nothing, so that sizes, dtypes and strides of results are real and values are not.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "fake_cuda_c"


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def headers() -> Path | None:
    """Return the headers of the CUDA runtime that came with torch's wheels."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "cuda_runtime" / "include"
        if (path / "cuda_runtime_api.h").exists():
            return path
    return None


@functools.cache
def build() -> Path:
    """Compile both libraries into a folder for temporary files, and return it."""
    found, include = compiler(), headers()
    assert found is not None and include is not None
    folder = Path(tempfile.mkdtemp(prefix="fake_cuda_"))
    common = [found, "-O1", "-Wall", "-shared", "-fPIC"]
    runtime = [*common, f"-I{SOURCES}", f"-I{include}", str(SOURCES / "runtime.c")]
    subprocess.run([*runtime, "-o", str(folder / "libfakecudart.so")], check=True)
    subprocess.run([*common, str(SOURCES / "driver.c"), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


def environment(sm: int) -> dict[str, str]:
    """Return the variables under which a process sees the imaginary device."""
    folder = build()
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
        "LD_PRELOAD": str(folder / "libfakecudart.so"),
        "AOT_FAKE_SM": str(sm),
    }


def run(sm: int, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run Python under the imaginary device."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment(sm), capture_output=True, text=True, timeout=timeout, check=False
    )


def rerun(sm: int) -> int:
    """Run this very program again, under the imaginary device."""
    return subprocess.run([sys.executable, *sys.argv], env=environment(sm), check=False).returncode
