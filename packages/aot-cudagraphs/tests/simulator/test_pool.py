"""The pool: where blocks lie, what is given out again, what is given back."""

from __future__ import annotations

import gc
import random

import pytest
import torch

from aot_cudagraphs.simulator import SimulatedPool, held_bytes
from aot_cudagraphs.simulator.pool import subtract

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def pool():
    pool = SimulatedPool()
    pool.acquire()
    return pool


def test_the_memory_of_a_dead_tensor_is_given_out_again(pool):
    first, second = pool.allocate(1000), pool.allocate(1000)
    address = first.data_ptr()
    del first
    assert pool.allocate(900).data_ptr() == address
    assert second.data_ptr() == address + 1024


def test_a_view_keeps_the_memory(pool):
    storage = pool.allocate(16)
    view = torch.empty(0).set_(storage, 0, (2, 2), (2, 1))[1]
    del storage
    assert pool.allocated_bytes == 512
    del view
    assert pool.allocated_bytes == 0


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, KIB, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 11 * MIB, 12 * MIB),
    ],
)
def test_sizes_are_those_of_cudas_allocator(pool, nbytes, allocated, reserved):
    storage = pool.allocate(nbytes)
    assert (storage.nbytes(), pool.allocated_bytes, pool.reserved_bytes) == (nbytes, allocated, reserved)


def test_random_use_never_gives_one_byte_out_twice_and_joins_what_is_free(pool, seed):
    choose = random.Random(seed)
    alive: list[torch.UntypedStorage] = []
    for _ in range(600):
        if alive and choose.random() < 0.5:
            del alive[choose.randrange(len(alive))]
        else:
            alive.append(pool.allocate(choose.choice([1, 700, 5_000, 90_000, MIB, 3 * MIB])))
        ends = 0
        for start, size in sorted((storage.data_ptr(), storage.nbytes()) for storage in alive):
            assert start >= ends and start % 512 == 0
            ends = start + size
    assert pool.peak_bytes >= pool.allocated_bytes >= sum(storage.nbytes() for storage in alive)
    alive.clear()
    assert pool.allocated_bytes == 0
    assert all(segment.free == [(segment.address, segment.size)] for segment in pool.segments)


def test_the_last_user_leaves_only_what_tensors_occupy():
    held = held_bytes()
    pool = SimulatedPool()
    pool.acquire()
    kept, dropped = pool.allocate(100), pool.allocate(3 * MIB)
    del dropped
    assert held_bytes() - held == pool.reserved_bytes == 22 * MIB
    pool.release()
    assert held_bytes() - held == pool.reserved_bytes == 2 * MIB
    del kept
    assert held_bytes() - held == pool.reserved_bytes == 0


def test_a_tensor_that_outlives_its_pool_is_counted():
    held = held_bytes()
    pool = SimulatedPool()
    pool.acquire()
    storage = pool.allocate(100)
    del pool
    gc.collect()
    assert held_bytes() - held == 2 * MIB
    del storage
    assert held_bytes() == held


def test_subtracting_ranges_is_subtracting_sets(seed):
    choose = random.Random(seed)
    for _ in range(200):
        ranges, removed = (
            [(choose.randrange(50), choose.randrange(1, 20)) for _ in range(choose.randrange(5))]
            for _ in "ab"
        )
        left = subtract(ranges, removed)
        expected = _bytes(ranges) - _bytes(removed)
        assert _bytes(left) == expected
        assert sum(size for _, size in left) == len(expected), "ranges overlap"


def _bytes(ranges):
    return {address + step for address, size in ranges for step in range(size)}
