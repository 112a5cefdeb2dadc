"""Versions, specifiers and markers, compared with the reference implementation, `packaging`."""

from __future__ import annotations

import random

import pytest
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet

from aot_registry.requirements import check_torch, satisfies

SUFFIXES = (
    "",
    "a1",
    "b2",
    "rc1",
    ".post1",
    ".dev3",
    "a1.dev2",
    ".post2.dev1",
    "+cpu",
    "rc1+cu128",
    ".post1+cpu",
)
OPERATORS = ("==", "!=", "<=", ">=", "<", ">", "~=")


def random_version(rng: random.Random, *, local: bool) -> str:
    parts = [rng.choice((1, 2)), *(rng.choice((0, 9, 10)) for _ in range(rng.randrange(3)))]
    suffix = rng.choice(SUFFIXES)
    epoch = rng.choice(("", "", "", "1!"))
    return epoch + ".".join(map(str, parts)) + (suffix if local else suffix.partition("+")[0])


def random_clause(rng: random.Random) -> str:
    operator = rng.choice(OPERATORS)
    if operator in ("==", "!=") and rng.random() < 0.4:
        return f"{operator}2.{rng.choice((0, 9, 10))}.*"
    version = random_version(rng, local=operator in ("==", "!="))
    if operator == "~=" and "." not in version.partition("!")[2] + version:
        version = f"{version}.0"
    return f"{operator}{version}"


def test_satisfies_agrees_with_packaging() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    compared = 0
    while compared < 5_000:
        version = random_version(rng, local=True)
        specifier = ",".join(random_clause(rng) for _ in range(rng.randint(1, 2)))
        try:
            expected = SpecifierSet(specifier).contains(version, prereleases=True)
        except ValueError:
            continue
        assert satisfies(version, specifier) == expected, (version, specifier)
        compared += 1


@pytest.mark.parametrize(
    "marker",
    [
        'python_version >= "3.9"',
        'python_version < "3.10" and sys_platform == "linux"',
        'python_full_version >= "3.10.0" or os_name == "nt"',
        '"3.9" < python_version',
        '"linux" in sys_platform',
        'sys_platform not in "win32 cygwin"',
        'platform_system != "Linux" or (platform_machine == "x86_64" and implementation_name == "cpython")',
        'extra == "future"',
    ],
)
def test_markers_agree_with_packaging(marker: str) -> None:
    problem = check_torch([f"torch>=9; {marker}"], distribution="fake 1.0", torch="2.13.0")
    assert (problem is not None) == Marker(marker).evaluate({"extra": ""})


@pytest.mark.parametrize("torch", ["2.10.0", "2.13.0+cpu", "2.15.9"])
@pytest.mark.parametrize(
    "requirement", ["torch>=2.10,<2.16", "torch (>=2.10, <2.16)", "Torch[opt]<2.16,>=2.10", "torch"]
)
def test_fitting_torch(torch: str, requirement: str) -> None:
    assert check_torch(["numpy", requirement], distribution="fake 1.0", torch=torch) is None


@pytest.mark.parametrize("torch", ["2.9.1", "2.16.0", "2.16.0a0+gitabc", "2.10.0rc1"])
def test_wrong_torch(torch: str) -> None:
    problem = check_torch(["torch>=2.10,<2.16"], distribution="fake 1.0", torch=torch)
    assert problem is not None and problem.code == "wrong-torch"
    assert problem.reason == f"fake 1.0 requires torch>=2.10,<2.16, and torch {torch} is installed"


def test_other_names_do_not_count() -> None:
    assert (
        check_torch(["torchvision>=9", "pytorch>=9", "torch-xla>=9"], distribution="fake 1.0", torch="2.13.0")
        is None
    )


@pytest.mark.parametrize(
    "requirement", ["torch @ https://example.org/torch.whl", "torch>=not.a.version", "torch; nonsense ="]
)
def test_what_cannot_be_parsed_passes(requirement: str) -> None:
    assert check_torch([requirement], distribution="fake 1.0", torch="2.13.0") is None
