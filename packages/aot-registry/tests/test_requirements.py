from __future__ import annotations

import sys

import pytest

from aot_registry.requirements import check_torch


@pytest.mark.parametrize(
    ("marker", "counts"),
    [
        ('python_version >= "3.9"', True),
        ('python_version < "3.9"', False),
        (f'sys_platform == "{sys.platform}"', True),
        ('extra == "future"', False),
    ],
)
def test_a_requirement_counts_where_its_marker_holds(marker: str, counts: bool) -> None:
    problem = check_torch([f"torch>=9; {marker}"], distribution="fake 1.0", torch="2.13.0")
    assert (problem is not None) == counts


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
