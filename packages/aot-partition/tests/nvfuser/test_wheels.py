"""Each combination that does not fit is named before anything is imported, with the wheel that would."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aot_partition.nvfuser.wheels import WHEELS, Environment, Wheel, has_toolkit, judge, read_environment


def wheel(cuda="12.8", torch="2.10", pythons=("3.12",)):
    return Wheel(
        f"nvfuser-cu{cuda.replace('.', '')}-torch{torch.replace('.', '')}", cuda, torch, pythons, "0.2.36"
    )


FITS = Environment("3.12", "2.10.0+cu128", "12.8", (wheel(),))
ROWS = {
    "nothing": (Environment("3.12", "2.10.0", "12.8", ()), "not installed", "nvfuser-cu128-torch210"),
    "no torch": (Environment("3.12", None, None, ()), "torch is not installed", "torch 2.10"),
    "another torch": (
        Environment("3.12", "2.10.0", "12.8", (wheel(torch="2.9"),)),
        "built for torch 2.9.*undefined symbol",
        "uninstall nvfuser-cu128-torch29.*nvfuser-cu128-torch210",
    ),
    "another CUDA": (
        Environment("3.12", "2.10.0+cu128", "12.8", (wheel(cuda="13.0"),)),
        "built for CUDA 13.0.*for CUDA 12.8",
        "uninstall nvfuser-cu130-torch210.*nvfuser-cu128-torch210",
    ),
    "another Python": (
        Environment("3.11", "2.10.0", "12.8", (wheel(),)),
        "built for Python 3.12.*this is Python 3.11.*_C_DIRECT",
        "Python 3.10 or 3.12",
    ),
    "a torch for CPUs": (
        Environment("3.12", "2.10.0+cpu", None, (wheel(),)),
        "built for CPUs.*libc10_cuda",
        "a build of it for CUDA 12.6 or 12.8 or 13.0",
    ),
    "a torch for which there is none": (
        Environment("3.12", "2.12.1", "13.0", (wheel(cuda="13.0"),)),
        "built for torch 2.10, and torch 2.12.1",
        "nvfuser-cu130-torch210.*torch 2.10",
    ),
    "two": (
        Environment("3.12", "2.10.0", "12.8", (wheel(), wheel(cuda="13.0"))),
        "2 variants.*cu128.*cu130",
        "uninstall nvfuser-cu128-torch210 nvfuser-cu130-torch210",
    ),
}


def test_what_fits():
    assert judge(FITS).usable
    assert judge(Environment("3.10", "2.10.0", "12.6", (wheel("12.6", pythons=("3.10",)),))).usable


@pytest.mark.parametrize("row", ROWS)
def test_what_does_not_fit(row):
    import re

    environment, reason, remedy = ROWS[row]
    found = judge(environment)
    assert not found.usable
    assert re.search(reason, found.reason), found
    assert re.search(remedy, found.remedy), found


def test_the_environment_is_read_without_importing_torch():
    program = (
        "import sys\nfrom aot_partition.nvfuser.wheels import judge, read_environment\njudge(read_environment())\n"
        "assert not sys.modules.keys() & {'torch', 'nvfuser_direct'}, 'imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_installed_here():
    import torch

    found = read_environment()
    assert found.torch == str(torch.__version__) or found.torch == str(torch.__version__).split("+")[0]
    assert found.cuda == torch.version.cuda


def test_the_names_of_the_extras():
    assert [each.name for each in WHEELS] == [f"nvfuser-cu{cuda}-torch210" for cuda in (126, 128, 130)]


@pytest.mark.parametrize(("version", "fits"), [(12080, True), (13000, False), (12060, False)])
def test_a_toolkit_has_to_be_as_old_as_nvfuser(tmp_path, version, fits):
    assert not has_toolkit("12.8", tmp_path)
    (tmp_path / "cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
    assert not has_toolkit("12.8", tmp_path)
    (tmp_path / "cub" / "block").mkdir(parents=True)
    (tmp_path / "cub" / "block" / "block_radix_sort.cuh").touch()
    assert has_toolkit("12.8", tmp_path) is fits
    assert not has_toolkit(None, tmp_path)
