"""The gate on public names, in a repository of its own with a release that a change breaks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import api_gate

RELEASED = {
    "__init__.py": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from aot_thing.shapes import Shape as Shape
            from aot_thing.shapes import area as area
            from aot_thing.shapes import square as square
            from aot_thing.shapes import _unit as _unit
        _HOMES = {"shapes": ("Shape", "area", "square")}
        __all__ = sorted(name for names in _HOMES.values() for name in names)
        """,
    "shapes.py": """
        import dataclasses

        __version__ = "0.1.0"

        @dataclasses.dataclass(frozen=True)
        class Shape:
            width: int
            height: int = 1

            def scaled(self, factor: int) -> "Shape": ...

            def _hidden(self, factor: int) -> None: ...

        def area(shape: Shape, *, unit: str = "mm") -> int: ...

        square = Shape(1)

        def _unit() -> str: ...

        def beside(shape: Shape) -> None: ...
        """,
    "extra.py": """
        __all__ = ["documented", "not_in_the_reference"]

        def documented(x: int) -> int: ...

        def not_in_the_reference(x: int) -> int: ...
        """,
}
REFERENCE = """
# Reference

```{eval-rst}
.. autofunction:: aot_thing.extra.documented
```
"""


class Repository:
    """A git repository with one package, ``aot-thing``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "packages" / "aot-thing"
        self.source = self.folder / "src" / "aot_thing"
        self.source.mkdir(parents=True)
        (root / "docs" / "reference").mkdir(parents=True)
        (root / "docs" / "reference" / "aot_thing.md").write_text(REFERENCE)
        for name, text in RELEASED.items():
            self.write(name, text)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        lines = text.removeprefix("\n").splitlines()
        (self.source / name).write_text("\n".join(line.removeprefix(" " * 8) for line in lines) + "\n")

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.source / name).read_text()
        assert old in text
        (self.source / name).write_text(text.replace(old, new))

    def waive(self, *waivers: tuple[str, str]) -> None:
        texts = [
            f'[[waiver]]\nobject = "{name}"\nkind = "{kind}"\nreason = "Meant."\n' for name, kind in waivers
        ]
        (self.folder / api_gate.WAIVERS).write_text("\n".join(texts))

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")

    def breaks(self) -> set[tuple[str, str]]:
        tag = api_gate.last_release(self.root, "aot-thing")
        found = api_gate.find_breaks(self.root, self.folder, tag)
        return {(each.object, each.kind) for each in found}


@pytest.fixture
def unreleased(tmp_path, monkeypatch):
    # The gate is to ask the repository that it is given, even where a hook of git runs the tests.
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Repository(tmp_path)


@pytest.fixture
def released(unreleased):
    unreleased.git("tag", "aot-thing-v0.1.0")
    return unreleased


def run(repository: Repository, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = api_gate.main([str(repository.folder)])
    return code, capsys.readouterr().out


def test_without_a_release_it_passes_and_says_so(unreleased, capsys):
    unreleased.change("shapes.py", "def area(", "def surface(")
    assert run(unreleased, capsys) == (0, "aot-thing: there is no release to compare with\n")


def test_outside_git_it_passes_and_says_so(released, capsys):
    (released.root / ".git").rename(released.root / "elsewhere")
    assert run(released, capsys) == (0, "aot-thing: there is no release to compare with\n")


def test_a_shallow_clone_says_what_it_may_lack(released, capsys):
    released.commit()
    clone = released.root / "clone"
    released.git("clone", "--quiet", "--depth", "1", "--no-tags", f"file://{released.root}", str(clone))
    assert api_gate.main([str(clone / "packages" / "aot-thing")]) == 0
    assert "this clone is shallow: `git fetch --unshallow --tags`" in capsys.readouterr().out


def test_nothing_changed(released, capsys):
    assert run(released, capsys) == (0, "aot-thing: breaks since aot-thing-v0.1.0: 0\n")


def test_a_removed_name_fails(released, capsys):
    released.change("__init__.py", "    from aot_thing.shapes import area as area\n", "")
    code, out = run(released, capsys)
    assert code == 1
    assert "breaks its users since aot-thing-v0.1.0: aot_thing.area [object-removed]." in out


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (', *, unit: str = "mm"', "", ("aot_thing.area(unit)", "parameter-removed")),
        ('unit: str = "mm"', "unit: str", ("aot_thing.area(unit)", "parameter-changed-required")),
        ('unit: str = "mm"', 'unit: str = "m"', ("aot_thing.area(unit)", "parameter-changed-default")),
        ("shape: Shape, *", "shape: Shape, n: int, *", ("aot_thing.area(n)", "parameter-added-required")),
        ("scaled(", "resized(", ("aot_thing.Shape.scaled", "object-removed")),
        ("scaled(self, factor", "scaled(self, by", ("aot_thing.Shape.scaled(factor)", "parameter-removed")),
        (
            "    width: int\n",
            "    width: int\n    depth: int\n",
            ("aot_thing.Shape.__init__(depth)", "parameter-added-required"),
        ),
        (") -> int: ...", "): ...", ("aot_thing.area", "return-changed-type")),
        (
            'def area(shape: Shape, *, unit: str = "mm") -> int: ...',
            "class area: ...",
            ("aot_thing.area", "object-changed-kind"),
        ),
    ],
)
def test_what_breaks_a_user_is_found(released, old, new, expected):
    released.change("shapes.py", old, new)
    assert expected in released.breaks()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def beside", "def elsewhere"),
        ("_hidden(self, factor", "_hidden(self, by"),
        ("square = Shape(1)", "square = Shape(1, 1)"),
        ('__version__ = "0.1.0"', '__version__ = "0.2.0"'),
        ('unit: str = "mm"', 'unit: str = "mm", more: int = 0'),
        ("    height: int = 1\n", "    height: int = 1\n    depth: int = 1\n"),
    ],
)
def test_what_breaks_nobody_is_not(released, old, new):
    released.change("shapes.py", old, new)
    assert released.breaks() == set()


def test_a_private_name_may_go(released):
    released.change("__init__.py", "    from aot_thing.shapes import _unit as _unit\n", "")
    assert released.breaks() == set()


def test_a_name_may_move_among_modules(released):
    (released.source / "shapes.py").rename(released.source / "forms.py")
    released.change("__init__.py", "aot_thing.shapes", "aot_thing.forms")
    assert released.breaks() == set()


def test_what_the_reference_documents_is_public_wherever_it_lies(released):
    released.change("extra.py", "documented(x: int)", "documented(y: int)")
    released.change("extra.py", "not_in_the_reference(x: int)", "not_in_the_reference(y: int)")
    # That the page is gone as well is no excuse.
    (released.root / "docs" / "reference" / "aot_thing.md").unlink()
    released.commit()
    assert ("aot_thing.extra.documented(x)", "parameter-removed") in released.breaks()
    assert not any("not_in_the_reference" in name for name, _ in released.breaks())


def test_a_waived_break_passes_with_its_reason(released, capsys):
    released.change("__init__.py", "    from aot_thing.shapes import area as area\n", "")
    released.waive(("aot_thing.area", "object-removed"))
    assert run(released, capsys) == (0, "aot-thing: waived: aot_thing.area [object-removed]. Meant.\n")


@pytest.mark.parametrize(
    "waiver", [("aot_thing.area", "object-changed-kind"), ("aot_thing.Shape", "object-removed")]
)
def test_a_waiver_of_something_else_does_not_help(released, capsys, waiver):
    released.change("__init__.py", "    from aot_thing.shapes import area as area\n", "")
    released.waive(waiver)
    code, out = run(released, capsys)
    assert code == 1
    assert "breaks its users" in out
    assert "which is not among the breaks" in out


def test_a_stale_waiver_fails(released, capsys):
    released.change("__init__.py", "    from aot_thing.shapes import area as area\n", "")
    released.waive(("aot_thing.area", "object-removed"))
    released.commit()
    released.git("tag", "aot-thing-v0.2.0")
    code, out = run(released, capsys)
    assert code == 1
    assert (
        "waives aot_thing.area [object-removed], which is not among the breaks since aot-thing-v0.2.0" in out
    )


def test_a_waiver_without_a_release_fails(unreleased, capsys):
    unreleased.waive(("aot_thing.area", "object-removed"))
    assert run(unreleased, capsys)[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        '[[waiver]]\nobject = "aot_thing.area"\nkind = "object-removed"\n',
        '[[waiver]]\nobject = "aot_thing.area"\nkind = "object-removed"\nreason = " "\n',
        2 * '[[waiver]]\nobject = "aot_thing.area"\nkind = "object-removed"\nreason = "Meant."\n',
    ],
)
def test_a_waiver_needs_a_reason_and_stands_once(released, text):
    (released.folder / api_gate.WAIVERS).write_text(text)
    with pytest.raises(ValueError, match=r"api-waivers\.toml"):
        api_gate.judge(released.folder)


def test_the_newest_release_behind_this_commit_counts(released):
    released.commit()
    for tag in ("aot-thing-v0.9.0", "aot-thing-v0.10.0", "aot-thing-else-v3.0.0"):
        released.git("tag", tag)
    released.git("checkout", "--quiet", "-b", "other")
    released.commit()
    released.git("tag", "aot-thing-v0.11.0")
    released.git("checkout", "--quiet", "main")
    assert api_gate.last_release(released.root, "aot-thing") == "aot-thing-v0.10.0"
