"""Every error class has a page in docs/errors that says symptom, cause and fix; every page has a class.

Classes are found in the sources: importing all modules would need torch.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from aot_core.errors import AotError
from repository import PACKAGES, ROOT

PAGES = ROOT / "docs" / "errors"
SECTIONS = ["Symptom", "Cause", "Fix"]


def error_classes(files: list[Path]) -> dict[str, Path]:
    """Return the classes that descend from AotError, by name, and the file each stands in."""
    bases: dict[str, tuple[set[str], Path]] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = ({ast.unparse(base).rpartition(".")[2] for base in node.bases}, file)
    found = {"AotError"}
    while more := {name for name, (parents, _) in bases.items() if parents & found} - found:
        found |= more
    return {name: bases[name][1] for name in sorted(found - {"AotError"})}


def slug(class_name: str) -> str:
    return type(class_name, (AotError,), {}).slug()


def problems_of_page(text: str, class_name: str) -> list[str]:
    """Return what a page lacks."""
    problems = []
    if not text.startswith(f"# {class_name}\n"):
        problems.append(f"its first line is not '# {class_name}'")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    sections = {title: body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    if list(sections) != SECTIONS:
        problems.append(f"its sections are {list(sections)}, expected {SECTIONS}")
    problems += [f"section {title} is empty" for title, body in sections.items() if not body]
    if "```text\n" not in sections.get("Symptom", ""):
        problems.append("section Symptom shows no message in a ```text block")
    return problems


CLASSES = error_classes([file for package in PACKAGES for file in package.python_files("src")])


def test_classes_are_found():
    assert {"UnknownOptionError", "InvalidCompilerResultError", "UnknownBackendError"} <= CLASSES.keys()


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_a_page(name):
    page = PAGES / f"{slug(name)}.md"
    assert page.exists(), f"{CLASSES[name]} defines {name}: write docs/errors/{page.name}"
    assert problems_of_page(page.read_text(encoding="utf-8"), name) == []


def test_slugs_are_unique():
    slugs = [slug(name) for name in CLASSES]
    assert len(slugs) == len(set(slugs))


def test_page_has_a_class():
    pages = {page.stem for page in PAGES.glob("*.md")} - {"index"}
    assert pages - {slug(name) for name in CLASSES} == set()


def test_a_class_is_found_through_others_and_across_files(tmp_path):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("class AotError(Exception): ...\nclass AError(errors.AotError, ValueError): ...\n")
    other.write_text("class BError(AError): ...\nclass C(ValueError): ...\n")
    assert list(error_classes([other, one])) == ["AError", "BError"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# BError\n## Symptom\n```text\nx\n```\n## Cause\nx\n## Fix\nx\n", "first line"),
        ("# AError\n## Symptom\n```text\nx\n```\n## Cause\nx\n", "sections"),
        ("# AError\n## Symptom\n```text\nx\n```\n## Cause\n\n## Fix\nx\n", "Cause is empty"),
        ("# AError\n## Symptom\nit breaks\n## Cause\nx\n## Fix\nx\n", "shows no message"),
    ],
)
def test_a_page_with_a_gap_is_seen(text, problem):
    assert any(problem in found for found in problems_of_page(text, "AError"))
