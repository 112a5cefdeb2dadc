"""Workflows run code of others only at a commit that is named in full, and ask for rights job by job."""

from __future__ import annotations

import re

import pytest

from repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path):
    used = [line.strip("- \n") for line in path.read_text().splitlines() if re.search(r"\buses:", line)]
    remote = [line for line in used if not line.startswith("uses: ./")]
    assert [line for line in remote if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_rights_by_default(path):
    assert re.search(r"^permissions: \{\}$", path.read_text(), re.MULTILINE)


def test_one_commit_per_action():
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, commit in re.findall(r"uses: ([\w./-]+)@(\S+)", path.read_text()):
            pins.setdefault(action, set()).add(commit)
    assert {action for action, commits in pins.items() if len(commits) > 1} == set()
    assert "actions/checkout" in pins
