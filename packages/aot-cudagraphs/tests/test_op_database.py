"""Torch's op database on the simulator: a sample by default, all of it as a sweep."""

from __future__ import annotations

import collections
import random

import pytest
import torch

from aot_cudagraphs import op_database
from aot_cudagraphs.op_database import entries, run_entry
from aot_cudagraphs.refusal_table import RULES
from aot_cudagraphs.simulator import SimulatedEngine, recorder

FORMS = {"forward": ("call", "in-place"), "backward": ("backward",)}
CODES = {rule.code for rule in RULES}


def problems(result):
    """Return what is wrong with an entry: silent mismatches, errors, refusals for no reason of the table."""
    return [
        outcome
        for outcome in result.outcomes
        if outcome.status in ("mismatch", "error")
        or (outcome.status == "refused" and outcome.detail not in CODES)
    ]


@pytest.mark.parametrize("direction", FORMS)
def test_a_sample_of_the_database_replays_exactly(direction, seed):
    found = random.Random(seed).sample(entries(*FORMS[direction]), 12)
    wrong = {}
    for entry in found:
        result = run_entry(SimulatedEngine(), entry, max_samples=20)
        if problems(result):
            wrong[entry.name] = problems(result)
    assert wrong == {}


# torch 2.13 has 831 and 540 entries; other lines have a few more or less.
@pytest.mark.sweep
@pytest.mark.parametrize(("direction", "share"), [("forward", 750 / 831), ("backward", 490 / 540)])
def test_the_whole_database(direction, share):
    results = [run_entry(SimulatedEngine(), entry) for entry in entries(*FORMS[direction])]
    wrong = {result.entry.name: problems(result) for result in results if problems(result)}
    counts = collections.Counter(result.status for result in results)
    print(torch.__version__, direction, dict(counts))
    assert wrong == {}
    assert counts["exact"] >= share * len(results)


def entry_named(name, form="call"):
    return next(entry for entry in entries(form) if entry.info.name == name)


def statuses(name, form="call"):
    result = run_entry(SimulatedEngine(), entry_named(name, form))
    return result.status, {outcome.status for outcome in result.outcomes}


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("add", "call", ("exact", {"exact"})),
        ("add", "in-place", ("exact", {"exact"})),
        ("sin", "backward", ("exact", {"exact"})),
        ("bernoulli", "call", ("exact", {"exact"})),
        ("empty_like", "call", ("exact", {"exact"})),
        ("resize_", "call", ("exact", {"exact"})),
        ("nn.functional.batch_norm", "call", ("exact", {"exact"})),
        ("nonzero", "call", ("refused", {"refused"})),
        ("index_put", "call", ("exact", {"exact", "refused"})),
        ("jiterator_unary", "call", ("not-run", {"not-run"})),
    ],
)
def test_known_entries(name, form, expected):
    assert statuses(name, form) == expected


class Faults:
    """The simulator with one thing wrong each: what the comparison must find."""

    def undone_writes_forgotten(monkeypatch):
        monkeypatch.setattr(recorder.Recorder, "_keep_contents", lambda self, tensor: None)

    def values_frozen(monkeypatch):
        monkeypatch.setattr(recorder.Recorder, "_at_address", lambda self, tensor: tensor.clone())

    def results_not_moved(monkeypatch):
        monkeypatch.setattr("aot_cudagraphs.simulator.step.copy_bytes", lambda storage, address: None)

    def operations_forgotten(monkeypatch):
        monkeypatch.setattr(recorder, "Step", lambda *args: recorder_step())

    def empty_table(monkeypatch):
        monkeypatch.setattr("aot_cudagraphs.refusals.RULES", ())


def recorder_step():
    class Nothing:
        def run(self):
            pass

    return Nothing()


@pytest.mark.parametrize(
    ("fault", "name", "form"),
    [
        ("undone_writes_forgotten", "add", "in-place"),
        ("values_frozen", "sin", "call"),
        ("results_not_moved", "sin", "call"),
        ("operations_forgotten", "sin", "backward"),
        ("empty_table", "item", "call"),
    ],
)
def test_a_fault_of_the_simulator_is_found(fault, name, form, monkeypatch):
    getattr(Faults, fault)(monkeypatch)
    status, _ = statuses(name, form)
    assert status in ("mismatch", "error")


def test_frozen_random_numbers_are_found(monkeypatch):
    class Seeded(SimulatedEngine):
        def record(self, function, inputs, pool, generators=()):
            recording = super().record(function, inputs, pool, generators)
            replay = recording.replay

            def frozen():
                torch.manual_seed(77)
                replay()

            recording.replay = frozen
            return recording

    result = run_entry(Seeded(), entry_named("bernoulli"))
    assert result.status == "mismatch"


def test_values_are_compared_by_bits():
    nan, zero = torch.tensor([float("nan"), 1.0]), torch.tensor([0.0])
    assert op_database._same(nan, nan.clone())
    assert not op_database._same(nan, torch.tensor([1.0, float("nan")]))
    assert not op_database._same(zero, -zero)
    assert not op_database._same(zero, zero.double())
