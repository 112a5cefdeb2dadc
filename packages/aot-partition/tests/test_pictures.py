"""Pictures of plans: files that open, with what they should show."""

from __future__ import annotations

import builtins
import re

import pytest
import torch
from memory_cases import Transformer, capture
from test_planner import launch_cost

import aot_partition
from aot_partition.errors import MissingExtraError
from aot_partition.memory.comparison import torch_points
from aot_partition.memory.planner import MemoryPlanner


@pytest.fixture(scope="module")
def planner():
    step = capture(Transformer(2), torch.randn(8, 16, 32))
    return MemoryPlanner(step.read(), cost_model=launch_cost, evaluations=8)


def test_the_timeline_of_a_step(planner, tmp_path):
    aot_partition.draw(planner.plan(0.8), tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text()
    assert text.startswith("<?xml") and len(re.findall("<path", text)) > 4


def test_the_front_with_torchs_points(planner, tmp_path):
    plans = planner.pareto(3)
    points = torch_points(planner.joint, seconds=planner.seconds, scratch=planner.scratch, budgets=(1.0, 0.5))
    aot_partition.draw_pareto(plans, tmp_path / "front.png", torch_points=points)
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_front_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one plan"):
        aot_partition.draw_pareto([], tmp_path / "front.png")


def test_without_matplotlib_the_extra_is_named(planner, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"aot-partition\[viz\]"):
        aot_partition.draw(planner.plan(1.0), tmp_path / "plan.png")
