"""Every ``python`` block of READMEs and docs/ runs; the blocks of one page run in order, as one program.

A block under the comment ``<!-- no-run: reason -->`` is only compiled. Indented blocks (in a list, in an
admonition) count too. A ``text`` block right below is what the code prints, numbers and file names aside; ``...``
in it stands for anything.

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
    r"^(?P=indent)(?P=fence)[ \t]*$"
    r"(?:\s*\n(?P=indent)```text\n(?P<output>.*?)^(?P=indent)```[ \t]*$)?",
    re.MULTILINE | re.DOTALL,
)


START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PROCESSES = multiprocessing.get_context(START)
if START == "forkserver":
    PROCESSES.set_forkserver_preload(["torch._dynamo"])
MARK = "---- end of the block at line {} ----"
TIME_LIMIT = 240  # seconds; a page that hangs is ended


class Block(NamedTuple):
    """One block of code: the page's line where it starts, its text, why it isn't run, and what it prints."""

    line: int
    code: str
    reason: str | None
    output: str | None


def blocks(text: str) -> list[Block]:
    return [
        Block(
            text.count("\n", 0, found.start("code")) + 1,
            textwrap.dedent(found["code"]),
            found["reason"],
            found["output"],
        )
        for found in FENCE.finditer(text)
    ]


def program(page_blocks: list[Block]) -> str:
    """Join the blocks that run, each at the line it has in the page, so that a traceback points there."""
    lines: list[str] = []
    for block in page_blocks:
        if block.reason is None:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
            lines.append(
                f"print({MARK.format(block.line)!r}, flush=True)"
            )  # on the line of the closing fence
    return "\n".join(lines) + "\n"


def what_each_printed(output: str) -> dict[int, str]:
    """Split the output of a page by its blocks: the line where a block starts, and what it printed."""
    parts = re.split(MARK.format(r"(\d+)"), output)
    return {int(line): printed for printed, line in zip(parts[::2], parts[1::2], strict=False)}


def prints(printed: str, promised: str) -> bool:
    """Tell whether a page's ``text`` block is what was printed, which may have warnings in between."""
    position, printed = 0, comparable(printed)
    for part in promised.split("..."):
        position = printed.find(comparable(part), position)
        if position < 0:
            return False
    return True


def comparable(text: str) -> str:
    """Return a text without what differs from run to run: figures, file names, the breaks of lines."""
    text = re.sub(r"[\w-]+\.(py|md):\d+", "FILE", text)
    return " ".join(re.sub(r"\d+(\.\d+)?(e[+-]\d+)?", "0", text).split())


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
    printed = what_each_printed(output)
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.output is not None and block.reason is None:
            where = f"{page}:{block.line}"
            assert prints(printed[block.line], block.output), f"{where} prints\n{printed[block.line]}"


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


def test_output_is_compared(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint('took 3 s')\n```\n\n```text\ntook 0.25 s\n```\n```python\nprint(2)\n```\n"
    )
    code, output = run_page(page, tmp_path)
    assert code == 0, output
    first, second = blocks(page.read_text())
    assert (first.output, second.output) == ("took 0.25 s\n", None)
    assert {line: text.strip() for line, text in what_each_printed(output).items()} == {2: "took 3 s", 9: "2"}


def test_another_output_is_seen():
    assert prints("a.py:3 took 3 s\n", "page.py:5 took\n1.5 s")
    assert prints("one two three", "one ... three")
    assert not prints("one two three", "three ... one")
    assert not prints("ok", "fallback")


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
