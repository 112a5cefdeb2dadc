"""One check is run three times from the same numbers, and leaves nothing behind."""

from __future__ import annotations

import random
import unittest

import pytest
import torch
from torch import nn

from aot_core.testing import Check
from aot_core.testing.check import all_checks, check, verify_names
from aot_core.testing.subject import Subject


def a_check(body, **fields):
    return Check("a_check", "theme", "Says what a user relies on.", body, **fields)


def test_backend_eager_and_float64_start_from_the_same_numbers():
    seen = []

    def body(subject):
        layer = subject.place(nn.Linear(2, 2))
        seen.append((subject.backend, subject.randn(3), layer.weight.detach(), subject.arange(2, 2)))

    a_check(body, dtype=torch.bfloat16).run("eager")
    (_, *eager), (_, *wide), (backend, *compiled) = seen
    assert backend == "eager"
    for low, high, again in zip(eager, wide, compiled, strict=True):
        assert low.dtype is torch.bfloat16
        assert high.dtype is torch.float64
        assert torch.equal(low.double(), high)
        assert torch.equal(low, again)


def test_complex_is_widened_to_complex128():
    subject = Subject(None, dtype=torch.complex64, wide=True)
    assert subject.randn(2).dtype is torch.complex128


def test_the_seed_decides():
    drawn = {}
    for seed in (1, 1, 2):
        a_check(lambda subject, seed=seed: drawn.setdefault(seed, []).append(subject.randn(4))).run(
            "eager", seed=seed
        )
    assert all(torch.equal(a.float(), drawn[1][0].float()) for a in drawn[1])
    assert not torch.equal(drawn[1][0], drawn[2][0])


def test_options_reach_the_backend():
    got = []

    def backend(gm, example_inputs, options=None):
        got.append(options)
        return gm.forward

    a_check(lambda subject: subject.compile(torch.sin)(subject.randn(2))).run(backend, options={"a": 1})
    assert got == [{"a": 1}]


def test_global_state_is_put_back():
    def spoil(subject):
        torch.rand(3)
        random.random()
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float16)
        torch.set_autocast_enabled("cpu", True)
        torch.use_deterministic_algorithms(True)
        raise LookupError("and it failed as well")

    generator, python_generator = torch.get_rng_state(), random.getstate()
    with pytest.raises(LookupError):
        a_check(spoil).run("eager")
    assert torch.equal(torch.get_rng_state(), generator)
    assert random.getstate() == python_generator
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.are_deterministic_algorithms_enabled()


def test_global_state_does_not_reach_a_check():
    def look(subject):
        return torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.is_autocast_enabled("cpu")

    with torch.no_grad(), torch.autocast("cpu"):
        a_check(lambda subject: look(subject) == (True, "torch.float32", False) or 1 / 0).run("eager")


def test_what_eager_does_not_do_is_no_failure_of_the_backend():
    compiled = []

    def backend(gm, example_inputs):
        compiled.append(gm)
        return gm.forward

    def body(subject):
        subject.compile(torch.sin)(subject.randn(2))
        raise AssertionError("never true")

    with pytest.raises(AssertionError, match="never true"):
        a_check(body).run(backend)
    assert compiled == []


def test_skip():
    with pytest.raises(unittest.SkipTest, match="no such device"):
        a_check(lambda subject: subject.skip("no such device")).run("eager")


def test_the_kit_is_large_and_each_check_says_what_it_is_about():
    checks = all_checks()
    assert len(checks) >= 45
    assert len({one.name for one in checks}) == len(checks)
    for one in checks:
        assert one.summary.endswith("."), one.name


def test_a_check_needs_a_summary_and_a_name_of_its_own():
    def nameless(subject):
        pass

    def training(subject):
        """There is one of this name."""

    with pytest.raises(TypeError, match="docstring of one line"):
        check()(nameless)
    with pytest.raises(ValueError, match="two checks are named 'training'"):
        check()(training)


def test_unknown_name_is_told_the_closest():
    with pytest.raises(ValueError, match=r"expected_failures names 'double_bakward'.*'double_backward'\?"):
        verify_names(["double_bakward"], where="expected_failures")
