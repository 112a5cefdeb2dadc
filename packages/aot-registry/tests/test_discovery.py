from __future__ import annotations

import sys

import pytest
from fake_site import GOOD_BACKEND, FakeSite

from aot_registry.discovery import Declaration, declarations, discover


def test_pairs_the_two_groups_by_name(site: FakeSite) -> None:
    site.install(
        "fake-backends",
        version="2.5",
        torch={"one": "fake:one", "two": "fake:two"},
        aot={"two": "fake_info:TWO", "three": "fake_info:THREE"},
        requires=["torch>=2.10"],
    )
    site.install("unrelated")
    (package,) = discover()
    assert (package.name, package.version, package.requires) == ("fake-backends", "2.5", ("torch>=2.10",))
    assert package.declarations == (
        Declaration("one", "fake-backends", "2.5", None, "fake:one"),
        Declaration("three", "fake-backends", "2.5", "fake_info:THREE", None),
        Declaration("two", "fake-backends", "2.5", "fake_info:TWO", "fake:two"),
    )


def test_imports_nothing(site: FakeSite) -> None:
    site.install("fake", torch={"one": "fake:one"}, modules={"fake.py": "raise SystemExit"})
    assert list(declarations()) == ["one"]
    assert "fake" not in sys.modules


@pytest.mark.parametrize("group", ["torch_dynamo_backends", "console_scripts"])
def test_malformed_entry_points_hide_nothing_else(site: FakeSite, group: str) -> None:
    site.install_good("sound-one", "sound")
    info = site.install("malformed", torch={"x": "y:z"})
    (info / "entry_points.txt").write_text(f"[{group}]\nno equals sign\n")
    assert list(declarations()) == ["sound"]
    (problem,) = [problem for package in discover() for problem in package.problems]
    assert problem.code == "broken-metadata" and "entry_points.txt of malformed" in problem.reason


def test_undecodable_entry_points_hide_nothing_else(site: FakeSite) -> None:
    site.install_good("sound-one", "sound")
    info = site.install("malformed", torch={"x": "y:z"})
    (info / "entry_points.txt").write_bytes(b"[torch_dynamo_backends]\n\xff\xfe = a:b\n")
    assert list(declarations()) == ["sound"]


def test_missing_metadata_leave_the_declaration(site: FakeSite) -> None:
    info = site.install("half-gone", torch={"half": "half:backend"})
    (info / "METADATA").unlink()
    (package,) = discover()
    assert package.declarations == (Declaration("half", "half_gone", "unknown", None, "half:backend"),)
    assert [problem.code for problem in package.problems] == ["broken-metadata"]


def test_first_on_the_path_hides_the_same_distribution_further_on(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("Fake.One", version="2.0", torch={"new": "fake:new"})
    older = FakeSite(site.folder.parent / "older")
    older.install("fake_one", version="1.0", torch={"old": "fake:old"})
    monkeypatch.setattr(sys, "path", [*sys.path, str(older.folder)])
    assert [(one.name, one.version) for one in declarations().values()] == [("new", "2.0")]


def test_missing_files_are_those_of_record(site: FakeSite) -> None:
    site.install("fake", torch={"one": "fake:one"}, modules={"fake.py": GOOD_BACKEND, "fake_b.py": ""})
    assert [package.missing_files for package in discover(check_files=True)] == [()]
    (site.folder / "fake_b.py").unlink()
    assert [package.missing_files for package in discover(check_files=True)] == [("fake_b.py",)]
    (site.folder / "fake-1.0.dist-info" / "RECORD").unlink()
    assert [package.missing_files for package in discover(check_files=True)] == [()]
