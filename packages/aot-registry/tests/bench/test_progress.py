"""The progress bar: where it shows, and that it leaves nothing behind."""

import io
import sys

import pytest

from aot_registry.bench.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def no_rich(monkeypatch):
    for module in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, module, None)


def use(file, shown):
    with progress_bar("text-gpt", 4, shown=shown, file=file) as advance:
        advance("eager: compile", 0)
        advance("eager", 1)
        advance("aot_x: round 1", 2)
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "shown", "visible"),
    [
        (io.StringIO, None, False),
        (io.StringIO, True, True),
        (Terminal, None, True),
        (Terminal, False, False),
    ],
)
def test_shown_on_a_terminal_or_if_forced(no_rich, file, shown, visible):
    assert bool(use(file(), shown)) == visible


def test_own_line(no_rich):
    states = use(Terminal(), None).split("\r")
    assert states[1].rstrip() == "text-gpt [........................]   0% eager: compile"
    assert states[3].rstrip() == "text-gpt [##################......]  75% aot_x: round 1"
    assert {len(state) for state in states} == {0, 79}
    assert not "".join(states[-2:]).strip(), "cleared at the end"


def test_own_line_is_cleared_after_an_error(no_rich):
    def fail(file):
        with progress_bar("t", 4, shown=True, file=file) as advance:
            advance("eager", 1)
            raise KeyError

    file = Terminal()
    with pytest.raises(KeyError):
        fail(file)
    assert file.getvalue().endswith("\r" + " " * 79 + "\r")


def test_more_steps_than_announced_stay_at_the_end(no_rich):
    file = Terminal()
    with progress_bar("t", 2, shown=True, file=file) as advance:
        advance("eager", 3)
    assert "[########################] 100% eager" in file.getvalue()


def test_rich_where_installed():
    pytest.importorskip("rich", reason="the extra [cli] is not installed")
    text = use(Terminal(), None)
    assert "text-gpt" in text
    assert "━" in text
