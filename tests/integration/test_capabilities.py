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

on_the_same_torch = pytest.mark.skipif(
    capabilities.torch_line() != WRITTEN["torch"] or torch.cuda.is_available(),
    reason=f"the table was made with torch {WRITTEN['torch']} on a machine without a CUDA device",
)


def test_it_knows_every_backend_and_every_check():
    assert list(WRITTEN["backends"]) == aot_registry.list_backends(exclude_tags=())
    assert WRITTEN["checks"] == capabilities.checks_by_theme()


@on_the_same_torch
@pytest.mark.parametrize("name", WRITTEN["backends"])
def test_the_usable_are_usable(name):
    written, found = WRITTEN["backends"][name].get("unusable"), capabilities.unusable(name)
    assert capabilities.alike(written, found), f"written is {written!r}, found is {found!r}"


@on_the_same_torch
@pytest.mark.parametrize(("name", "run"), RUNS, ids=[f"{name}{run['options'] or ''}" for name, run in RUNS])
def test_a_run_says_what_the_kit_says(name, run):
    excepted = [check for exception in run["exceptions"] for check in exception["checks"]]
    passed = [check for check in CHECKS if check not in excepted]
    # A backend that falls back everywhere has an exception for every check: a few of them say as much.
    generator = random.Random(SEED)
    print(f"sample of seed {SEED}")
    some = {
        check
        for exception in run["exceptions"]
        for check in generator.sample(exception["checks"], min(SAMPLE, len(exception["checks"])))
    }
    some |= set(generator.sample(passed, min(SAMPLE, len(passed))))
    found = capabilities.outcomes(capabilities.run(name, run["options"], only=some))
    written = capabilities.outcomes(run)
    assert found == {check: outcome for check, outcome in written.items() if check in some}


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


def test_figures_in_reasons_are_not_compared():
    def told(error):
        return [
            {"options": {}, "exceptions": [{"status": "failed", "reason": error, "checks": ["training"]}]}
        ]

    first, second = told("largest error 2.5e-07, allowed 1"), told("largest error 3, allowed 1e+2")
    assert capabilities.differing_runs("some", first, second) == []
    assert capabilities.differing_runs("some", first, told("smallest error 3, allowed 1")) != []
