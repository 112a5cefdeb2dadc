"""The documentation's table of capabilities says what the kit says, as far as a sample of each run tells.

`nox -s capabilities -- --check` compares everything; `nox -s capabilities` writes the table anew.
"""

from __future__ import annotations

import copy
import random

import pytest
import torch

import aot_registry
import capabilities

SEED = 22
SAMPLE = 3
WRITTEN = capabilities.load()
CHECKS = [name for names in WRITTEN["checks"].values() for name in names]
RUNS = [(name, run) for name, entry in WRITTEN["backends"].items() for run in entry.get("runs", [])]
EXCEPTIONS = [exception["checks"] for _, run in RUNS for exception in run["exceptions"]]
# What one backend can't do, another may not do either: these are tried on all.
TELLING = {check for checks in EXCEPTIONS if len(checks) <= SAMPLE for check in checks}

on_the_same_torch = pytest.mark.skipif(
    capabilities.torch_line() != WRITTEN["torch"] or torch.cuda.is_available(),
    reason=f"the table was made with torch {WRITTEN['torch']} on a machine without a CUDA device",
)


def test_it_knows_every_backend_and_every_check():
    assert list(WRITTEN["backends"]) == aot_registry.list_backends(exclude_tags=())
    assert WRITTEN["checks"] == capabilities.checks_by_theme()


@on_the_same_torch
@pytest.mark.parametrize("name", [name for name, entry in WRITTEN["backends"].items() if "unusable" in entry])
def test_the_unusable_are_unusable(name):
    written, found = WRITTEN["backends"][name]["unusable"], capabilities.unusable(name)
    assert capabilities.alike(written, found), f"written is {written!r}, found is {found!r}"


@on_the_same_torch
@pytest.mark.parametrize(("name", "run"), RUNS, ids=[f"{name}{run['options'] or ''}" for name, run in RUNS])
def test_a_run_says_what_the_kit_says(name, run):
    print(f"sample of seed {SEED}")
    generator = random.Random(SEED)
    some = TELLING | set(generator.sample(CHECKS, SAMPLE))
    found = capabilities.outcomes(capabilities.run(name, run["options"], only=some))
    written = capabilities.outcomes(run)
    assert found == {check: outcome for check, outcome in written.items() if check in some}


@pytest.fixture
def torch_for_cpus(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)


@pytest.mark.usefixtures("torch_for_cpus")
def test_a_difference_is_told():
    other = copy.deepcopy(WRITTEN)
    (run,) = other["backends"]["aot_core_eager"]["runs"]
    run["exceptions"].append({"status": "failed", "reason": "AssertionError", "checks": ["training"]})
    del other["backends"]["aot_mem_efficient"]
    other["backends"]["nvprims_nvfuser"] = {"unusable": "Another reason."}
    other["checks"]["runtime"].pop()
    told = "\n".join(capabilities.differing(WRITTEN, other))
    assert "checks differs" in told
    assert (
        "aot_core_eager {} training: written is ('passed', ''), found is ('failed', 'AssertionError')" in told
    )
    assert "aot_mem_efficient is not installed" in told
    assert "nvprims_nvfuser: is it usable?" in told
    assert capabilities.differing(WRITTEN, copy.deepcopy(WRITTEN)) == []


@pytest.mark.usefixtures("torch_for_cpus")
def test_figures_in_reasons_are_not_compared():
    def told(error):
        return [
            {"options": {}, "exceptions": [{"status": "failed", "reason": error, "checks": ["training"]}]}
        ]

    first, second = told("largest error 2.5e-07, allowed 1"), told("largest error 3, allowed 1e+2")
    assert capabilities.differing_runs("some", first, second) == []
    assert capabilities.differing_runs("some", first, told("smallest error 3, allowed 1")) != []


def test_reasons_are_not_compared_under_a_torch_for_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert capabilities.alike("built for CPUs", "no device")
    assert not capabilities.alike("built for CPUs", None)
