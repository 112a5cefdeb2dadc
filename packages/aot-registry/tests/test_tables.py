from __future__ import annotations

import sys

import pytest

from aot_registry.tables import format_table, print_table


def test_columns_are_aligned_and_the_last_one_folded() -> None:
    text = format_table(("name", "why"), [("a", "one two three four five six"), ("long_name", "")], width=31)
    assert text.splitlines() == [
        "name       why",
        "---------  --------------------",
        "a          one two three four",
        "           five six",
        "long_name",
    ]


def test_title_and_no_rows() -> None:
    assert format_table(("a", "b"), [], title="Nothing") == "Nothing\na  b\n-  -"


def test_plain_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    print_table(("a", "b"), [("1", "2")])
    assert capsys.readouterr().out == "a  b\n-  -\n1  2\n"


def test_rich_takes_cells_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich", reason="waits for the extra [cli]")
    print_table(("name", "why"), [("a", "[bold]not markup[/bold] [missing-library]")])
    assert "[bold]not markup[/bold] [missing-library]" in capsys.readouterr().out
