"""Random programs, recorded once and replayed on changing inputs, against eager.

A program is a list of statements on a list of values: arithmetic, views, writes through views, random numbers, results
in given memory, values dropped. The same statements run eagerly and recorded; values, inputs and random state must be
the same bits after each of several steps.
"""

from __future__ import annotations

import gc
import random

import pytest
import torch

from aot_cudagraphs.simulator import SimulatedEngine, SimulatedPool, held_bytes

engine = SimulatedEngine()
SIZE = (4, 6)


def add(values, one, other):
    values.append(values[one] + values[other])


def scale(values, one, other):
    values.append(values[one] * 0.5)


def tanh(values, one, other):
    values.append(values[one].tanh())


def transposed_twice(values, one, other):
    values.append((values[one].t() @ values[other]).mm(values[one].t()).t())


def write(values, one, other):
    values[one].mul_(0.25)


def write_row(values, one, other):
    values[one][1].copy_(values[other][0].detach() * 0.5)


def write_flat(values, one, other):
    values[one].as_strided((3,), (2,), 1).add_(1)


def share(values, one, other):
    values.append(values[one].view(SIZE))


def draw(values, one, other):
    values.append(torch.rand(SIZE))


def dropout(values, one, other):
    values.append(torch.nn.functional.dropout(values[one], 0.5))


def draw_in_place(values, one, other):
    values[one].uniform_(0, 1)


def into(values, one, other):
    result = torch.empty(0)
    torch.add(values[one], values[other], out=result)
    values.append(result)


def lists(values, one, other):
    if one != other and values[one].data_ptr() != values[other].data_ptr():
        torch._foreach_mul_([values[one], values[other]], 0.5)


def sort(values, one, other):
    ordered, places = values[one].sort(dim=1)
    values.append(ordered + places)


def drop(values, one, other):
    if len(values) > 4:
        del values[one]


def statistics(values, one, other):
    mean, variance = values[other][0], values[other][1]
    values.append(torch.nn.functional.batch_norm(values[one], mean, variance.abs() + 1, training=False))


STATEMENTS = [
    add,
    scale,
    tanh,
    transposed_twice,
    write,
    write_row,
    write_flat,
    share,
    draw,
    dropout,
    draw_in_place,
    into,
    lists,
    sort,
    drop,
    statistics,
]


def program(choose, length):
    return [(choose.choice(STATEMENTS), choose.random(), choose.random()) for _ in range(length)]


def run(statements, values):
    for statement, one, other in statements:
        statement(values, int(one * len(values)), int(other * len(values)))
    return values


def same(one, other):
    return torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("number", range(40))
def test_one_recording(number, seed):
    choose = random.Random(f"{seed} {number}")
    statements = program(choose, choose.randrange(1, 25))
    inputs = [torch.randn(SIZE) for _ in range(3)]
    twins = [value.clone() for value in inputs]
    before = [value.clone() for value in inputs]
    pool = SimulatedPool()
    recording = engine.record(lambda boxed: run(statements, list(boxed)), inputs, pool)
    assert all(map(same, inputs, before)), statements
    for step in range(3):
        torch.manual_seed(step)
        recording.replay()
        state = torch.get_rng_state()
        torch.manual_seed(step)
        expected = run(statements, list(twins))
        assert torch.equal(state, torch.get_rng_state())
        assert all(map(same, inputs, twins)), statements
        assert all(map(same, recording.outputs, expected)), statements
        for value, twin in zip(inputs, twins, strict=True):
            value.copy_(torch.randn(SIZE))
            twin.copy_(value)


@pytest.mark.parametrize("number", range(40))
def test_a_second_recording_in_the_same_pool_takes_over_the_values(number, seed):
    """As a backward does: recorded after the first replay, it consumes its values and reuses their place."""
    gc.collect()
    held = held_bytes()
    choose = random.Random(f"{seed} {number}")
    forward, backward = (program(choose, choose.randrange(1, 15)) for _ in range(2))
    inputs = [torch.randn(SIZE) for _ in range(3)]
    twins = [value.clone() for value in inputs]
    pool = SimulatedPool()
    first = engine.record(lambda boxed: run(forward, list(boxed)), inputs, pool)
    torch.manual_seed(0)
    first.replay()
    between = [value.clone() for value in first.outputs]
    shown = [engine.unowned(value) for value in first.outputs]
    handed = list(first.outputs)
    first.outputs.clear()

    def consume(boxed):
        values = list(boxed)
        boxed.clear()
        return run(backward, values)[-2:]

    second = engine.record(consume, handed, pool)
    assert all(map(same, shown, between)), "recording has changed what it was to consume"
    for step in range(3):
        if step:
            torch.manual_seed(step)
            first.replay()
        second.replay()
        torch.manual_seed(step)
        expected = run(backward, run(forward, list(twins)))[-2:]
        assert all(map(same, second.outputs, expected)), (forward, backward)
        assert all(map(same, inputs, twins)), (forward, backward)
    for recording in (first, second):
        recording.release()
    del handed, between, expected
    assert held_bytes() == held
