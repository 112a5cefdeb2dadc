"""A sample of torch's op database, compiled and compared with eager. All of it: ``benchmarks/torchscript_opdb.py``."""

from __future__ import annotations

import random

import pytest

from aot_ts_fusion import op_database, ts_compile

SEED = 11


def sample(gradient, count):
    found = op_database.entries(gradient=gradient)
    return random.Random(SEED).sample(found, count)


def check(entries, dynamic, samples=None):
    print(f"sample of seed {SEED}")
    wrong = {}
    native = operations = 0
    for entry in entries:
        for each in op_database.first_samples(entry, samples):
            traced = op_database.trace_sample(entry, each, dynamic=dynamic)
            if traced is None:
                continue
            outcome = op_database.run_sample(ts_compile, traced)
            native += outcome.native
            operations += outcome.operations
            if outcome.status not in op_database.RIGHT:
                wrong[entry.name] = outcome
    assert wrong == {}
    assert operations > 0
    return native / operations


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_static_shapes(gradient):
    assert check(sample(gradient, 25), dynamic=False, samples=2) > 0.95


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_dynamic_shapes(gradient):
    assert check(sample(gradient, 10), dynamic=True, samples=1) > 0.95


@pytest.mark.sweep
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_all(gradient, dynamic):
    assert check(op_database.entries(gradient=gradient), dynamic) > 0.99


def check_errors(calls):
    outcomes = [op_database.run_error(ts_compile, name, call) for name, call in calls]
    compared = [each for each in outcomes if not isinstance(each, str)]
    assert [each for each in compared if not each.same] == []
    return len(compared)


def test_matrices_that_cannot_be_factored():
    assert check_errors(op_database.unfactorable().items()) >= 12


def test_some_inputs_that_must_raise():
    print(f"sample of seed {SEED}")
    assert check_errors(op_database.error_entries(every=8, seed=SEED)) > 10


@pytest.mark.sweep
def test_all_inputs_that_must_raise():
    assert check_errors(op_database.error_entries()) > 300


def test_the_comparison_finds_what_is_wrong():
    (entry,) = [each for each in op_database.entries(gradient=False) if each.name == "mul float32 forward"]
    each = next(entry.samples())
    traced = op_database.trace_sample(entry, each, dynamic=False)

    def off_by_one(gm, inputs):
        return lambda args: [output + 1 for output in gm(*args)]

    def aliased(gm, inputs):
        return lambda args: [args[0].copy_(output) for output in gm(*args)]

    assert op_database.run_sample(off_by_one, traced).status == "wrong"
    assert op_database.run_sample(aliased, traced).detail == "other memory is shared"
