"""Copies on the device: made once, made anew when the tensor has changed, freed when they are not needed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from fake_device import FakeDevice

from aot_xla.transfer import CopiesOnDevice, Slots


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def copies(device):
    return CopiesOnDevice(device)


def moved(copies, tensors, slots, *, compare_contents=True):
    """Return how many tensors were moved, having checked that the copies are right."""
    on_device, missing = copies.of(tensors, slots, compare_contents=compare_contents)
    for copy, tensor in zip(on_device, tensors, strict=True):
        torch.testing.assert_close(copy, tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert copy.numel() == 0 or copy.data_ptr() != tensor.data_ptr()
    return len(missing)


def test_moved_once(copies, device):
    parameter, slots = torch.nn.Parameter(torch.randn(3)), Slots()
    assert [moved(copies, [parameter], slots) for _ in range(3)] == [1, 0, 0]
    assert device.uploads == [[torch.Size([3])]]


def test_all_in_one_upload(copies, device):
    tensors = [torch.randn(n) for n in range(1, 4)]
    assert moved(copies, tensors, Slots()) == 3
    assert len(device.uploads) == 1


def test_shared_by_graphs(copies):
    parameter = torch.nn.Parameter(torch.randn(3))
    forward, backward = Slots(), Slots()
    assert moved(copies, [parameter], forward) == 1
    assert moved(copies, [parameter], backward) == 0


def test_a_tensor_passed_twice_is_moved_once(copies):
    x = torch.randn(3)
    assert moved(copies, [x, x], Slots()) == 1


WRITES = {
    "in place": lambda p: p.add_(1),
    "by index": lambda p: p.__setitem__(0, 7.0),
    "through a view": lambda p: p[1:].zero_(),
    "by copy_": lambda p: p.copy_(torch.zeros_like(p)),
    "by foreach": lambda p: torch._foreach_add_([p], 1.0),
}
HIDDEN_WRITES = {
    "through data": lambda p: p.data.add_(1),
    "through NumPy": lambda p: p.detach().numpy().fill(3),
    "through detached data": lambda p: p.data[:1].fill_(9),
    "a NaN": lambda p: p.data.fill_(float("nan")),
    "a sign of zero": lambda p: p.data.copy_(-torch.zeros(3)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("compare_contents", [True, False])
def test_a_write_that_autograd_sees_is_seen(copies, write, compare_contents):
    parameter, slots = torch.nn.Parameter(torch.ones(3)), Slots()
    moved(copies, [parameter], slots, compare_contents=compare_contents)
    with torch.no_grad():
        write(parameter)
    assert moved(copies, [parameter], slots, compare_contents=compare_contents) == 1
    assert moved(copies, [parameter], slots, compare_contents=compare_contents) == 0


@pytest.mark.parametrize("write", HIDDEN_WRITES.values(), ids=HIDDEN_WRITES)
def test_a_write_that_autograd_does_not_see_is_seen(copies, write):
    parameter, slots = torch.nn.Parameter(torch.zeros(3)), Slots()
    moved(copies, [parameter], slots)
    before = parameter._version
    write(parameter)
    assert parameter._version == before, "this write was meant to be hidden"
    assert moved(copies, [parameter], slots) == 1
    assert moved(copies, [parameter], slots) == 0


def test_versions_alone_miss_a_hidden_write(copies):
    """What the option says of itself."""
    parameter, slots = torch.nn.Parameter(torch.zeros(3)), Slots()
    copies.of([parameter], slots, compare_contents=False)
    parameter.data.add_(1)
    assert copies.of([parameter], slots, compare_contents=False)[1] == []


@pytest.mark.parametrize("compare_contents", [True, False])
def test_other_memory_is_seen(copies, compare_contents):
    parameter, slots = torch.nn.Parameter(torch.zeros(3)), Slots()
    moved(copies, [parameter], slots, compare_contents=compare_contents)
    parameter.data = torch.ones(3)
    assert moved(copies, [parameter], slots, compare_contents=compare_contents) == 1


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.1),
        lambda p: torch.optim.Adam(p, 0.1, foreach=True),
        lambda p: torch.optim.Adam(p, 0.1, fused=True),
        lambda p: torch.optim.AdamW(p, 0.1, foreach=False),
    ],
    ids=["sgd", "adam", "adam-foreach", "adam-fused", "adamw"],
)
def test_steps_of_optimizers_are_seen(copies, optimizer):
    parameter, slots = torch.nn.Parameter(torch.randn(3)), Slots()
    steps = optimizer([parameter])
    for _ in range(3):
        assert moved(copies, [parameter], slots) == 1
        parameter.grad = torch.ones(3)
        steps.step()


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64, torch.complex128],
)
def test_every_dtype_is_compared(copies, dtype):
    tensor, slots = torch.zeros(4, dtype=dtype), Slots()
    assert moved(copies, [tensor], slots) == 1
    assert moved(copies, [tensor], slots) == 0
    tensor.data[3] = 1
    assert moved(copies, [tensor], slots) == 1


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[::2, 1:], lambda x: x.expand(2, 4, 4), lambda x: x[:0], lambda x: x[0, 0]],
)
def test_strides_and_sizes(copies, view):
    x, slots = view(torch.randn(4, 4)), Slots()
    assert moved(copies, [x], slots) == 1
    assert moved(copies, [x], slots) == 0


def test_lazy_conjugates(copies):
    x = torch.randn(3, dtype=torch.complex64).conj()
    on_device, _ = copies.of([x], Slots(), compare_contents=True)
    torch.testing.assert_close(on_device[0], x.resolve_conj())


def test_a_tensor_of_inference_mode_has_no_version(copies):
    with torch.inference_mode():
        x, slots = torch.zeros(3), Slots()
        moved(copies, [x], slots, compare_contents=False)
        x.add_(1)
        assert moved(copies, [x], slots, compare_contents=False) == 1
    assert not slots.copies[0].on_device.is_inference()


def test_a_new_tensor_in_the_place_of_a_dead_one(copies):
    slots = Slots()
    for value in range(20):
        assert moved(copies, [torch.full((3,), float(value))], slots) == 1


def test_copies_die_with_their_tensor(copies):
    slots, parameter = Slots(), torch.nn.Parameter(torch.randn(3))
    on_device = copies.of([parameter], slots, compare_contents=True)[0]
    alive = weakref.ref(on_device[0])
    del on_device
    assert alive() is not None
    gc.disable()
    try:
        del parameter
        assert alive() is None
    finally:
        gc.enable()


def test_a_batch_goes_when_the_next_one_comes(copies):
    slots, batches = Slots(), [torch.randn(3), torch.randn(3)]
    on_device = copies.of(batches[:1], slots, compare_contents=True)[0]
    alive = weakref.ref(on_device[0])
    del on_device
    gc.disable()
    try:
        copies.of(batches[1:], slots, compare_contents=True)
        assert alive() is None, "the batch is alive, and its copy too"
    finally:
        gc.enable()
