"""Every ``python`` block of READMEs and docs/ runs; the blocks of one page run in order, as one program.

A block under the comment ``<!-- no-run: reason -->`` is only compiled. Indented blocks (in a list, in an
admonition) count too.

Each page is a process of its own. All are forked from a server that has imported torch, which takes longer than
most pages do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import runpy
import textwrap
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {ROOT / "README.md", ROOT / "CONTRIBUTING.md"}
    | set(ROOT.glob("packages/*/README.md"))
    | {page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts}
)
FENCE = re.compile(
    r"(?:^[ \t]*<!--[ ]no-run:[ ](?P<reason>[^\n]+?)[ ]-->\s*\n)?"
    r"^(?P<indent>[ \t]*)(?P<fence>```+|:::+)[ ]*(?:\{code-block\}[ ]+)?python[^\n]*\n"
    r"(?P<code>.*?)"
    r"^(?P=indent)(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PROCESSES = multiprocessing.get_context(START)
if START == "forkserver":
    PROCESSES.set_forkserver_preload(["torch._dynamo"])
TIME_LIMIT = 240  # seconds; a page that hangs is ended


class Block(NamedTuple):
    """One block of code: the page's line where it starts, its text, and why it isn't run."""

    line: int
    code: str
    reason: str | None


def blocks(text: str) -> list[Block]:
    return [
        Block(text.count("\n", 0, found.start("code")) + 1, textwrap.dedent(found["code"]), found["reason"])
        for found in FENCE.finditer(text)
    ]


def program(page_blocks: list[Block]) -> str:
    """Join the blocks that run, each at the line it has in the page, so that a traceback points there."""
    lines: list[str] = []
    for block in page_blocks:
        if block.reason is None:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


def run_page(page: Path, folder: Path) -> tuple[int | None, str]:
    """Run a page's code in a process and a folder of its own; return its exit code and what it printed."""
    found = blocks(page.read_text(encoding="utf-8"))
    for block in found:
        compile(block.code, f"{page.name}:{block.line}", "exec")
    script = folder / f"{page.stem}.py"
    script.write_text(program(found), encoding="utf-8")
    output = folder / "output.txt"
    process = PROCESSES.Process(target=run_script, args=(script, output))
    process.start()
    process.join(TIME_LIMIT)
    process.kill()
    process.join()
    return process.exitcode, output.read_text(encoding="utf-8")


def run_script(script: Path, output: Path) -> None:
    """Run a file as a program. This is what the page's process does."""
    os.chdir(script.parent)
    with (
        output.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


WITH_CODE = [page for page in PAGES if any(block.reason is None for block in blocks(page.read_text("utf-8")))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs(page, tmp_path):
    code, output = run_page(page, tmp_path)
    assert code == 0, f"{page} ended with {code}\n{output}"


@pytest.mark.parametrize(
    "page", sorted(set(PAGES) - set(WITH_CODE)), ids=lambda page: str(page.relative_to(ROOT))
)
def test_code_that_is_not_run_compiles(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        compile(block.code, f"{page.name}:{block.line}", "exec")


def test_the_front_page_has_code():
    assert ROOT / "README.md" in WITH_CODE


def test_blocks_are_found_joined_and_left_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```python\nx = 1\n```\n"
        "<!-- no-run: needs a GPU -->\n```python\nraise SystemExit(3)\n```\n"
        "- item\n\n  ```python\n  assert x == 1\n  ```\n"
        "```sh\nexit 4\n```\n"
        "```{code-block} python\nraise SystemExit(5)\n```\n"
    )
    assert [block.reason for block in blocks(page.read_text())] == [None, "needs a GPU", None, None]
    assert [block.line for block in blocks(page.read_text())] == [3, 7, 12, 18]
    assert run_page(page, tmp_path)[0] == 5


def test_a_broken_page_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("\n\n```python\nraise LookupError('here')\n```\n")
    code, output = run_page(page, tmp_path)
    assert code == 1
    assert "line 4, in <module>" in output
    assert "LookupError: here" in output


def test_unrun_code_must_still_compile(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run: shows a fragment -->\n```python\nx = = 1\n```\n")
    with pytest.raises(SyntaxError):
        run_page(page, tmp_path)
