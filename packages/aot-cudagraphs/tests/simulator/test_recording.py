"""What capture and replay do, one rule of CUDA graphs a test."""

from __future__ import annotations

import contextlib
import gc
import pickle

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from aot_cudagraphs import (
    CaptureRefusedError,
    FreedMemoryError,
    ReleasedRecordingError,
    ReplayMismatchError,
)
from aot_cudagraphs.simulator import SimulatedEngine, SimulatedPool, as_host, held_bytes

aten = torch.ops.aten
engine = SimulatedEngine()


def record(function, *inputs, pool=None, **options):
    return engine.record(lambda boxed: function(*boxed), list(inputs), pool or SimulatedPool(), **options)


# --- capturing has no effect -------------------------------------------------------------------------------


def test_nothing_has_run_before_the_first_replay():
    x = torch.ones(3)
    recording = record(lambda x: (x * 2, (x * 2).to(torch.int32)), x)
    assert recording.outputs[0].isnan().all() and (recording.outputs[1] == -1).all()
    recording.replay()
    assert recording.outputs[0].tolist() == recording.outputs[1].tolist() == [2, 2, 2]


def norm_statistics(x, y):
    return torch.batch_norm_update_stats(x, y[0], y[1], 0.1)


WRITES = {
    "in place": lambda x, y: x.add_(1),
    "through a view": lambda x, y: x[1:].view(-1).zero_(),
    "a list": lambda x, y: torch._foreach_add_([x, y[0]], 1.0),
    "an argument for the result": lambda x, y: torch.mul(x, 2, out=y),
    "into a slice": lambda x, y: x[0].copy_(y[1]),
    "statistics that a schema hides": norm_statistics,
    "batch norm in training": lambda x, y: torch.nn.functional.batch_norm(x, y[0], y[1], training=True),
    "random numbers": lambda x, y: x.normal_(),
}


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_to_memory_outside_is_undone_and_done_by_each_replay(kind):
    x, y = torch.randn(4, 4), torch.rand(4, 4)
    eager = [x.clone(), y.clone()]
    before = [x.clone(), y.clone()]
    recording = record(WRITES[kind], x, y)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])
    state = torch.get_rng_state()
    for _ in range(2):
        recording.replay()
    torch.set_rng_state(state)
    for _ in range(2):
        WRITES[kind](*eager)
    assert not (torch.equal(x, before[0]) and torch.equal(y, before[1]))
    assert torch.equal(x, eager[0]) and torch.equal(y, eager[1])


def test_memory_of_an_earlier_recording_is_as_it_was():
    """A backward is recorded between the forward's replay and its own: the activations must survive that."""
    pool, x = SimulatedPool(), torch.ones(200)
    forward = record(lambda x: (x * 2, x * 3), x, pool=pool)
    forward.replay()
    activation = engine.unowned(forward.outputs[0])
    address = forward.outputs[0].data_ptr()

    def consume(boxed):
        result = boxed.pop() + 1
        boxed.clear()
        return result * 5 + 1

    boxed = [forward.outputs.pop(0)]
    backward = engine.record(consume, boxed, pool)
    assert address in [result.address for step in backward._steps for result in step.results], "not reused"
    assert (activation == 2).all(), "recording has overwritten what it only recorded"
    backward.replay()
    assert (backward.outputs[0] == 16).all()


def test_a_write_to_a_live_output_of_an_earlier_recording_is_undone():
    pool, x = SimulatedPool(), torch.ones(3)
    first = record(lambda x: x * 2, x, pool=pool)
    first.replay()
    second = record(lambda y: y.mul_(10), first.outputs[0], pool=pool)
    assert first.outputs[0].tolist() == [2, 2, 2]
    second.replay()
    assert first.outputs[0].tolist() == [20, 20, 20]


# --- addresses ---------------------------------------------------------------------------------------------


def test_new_values_at_the_old_address_are_seen():
    x = torch.ones(3)
    recording = record(lambda x: x + 1, x)
    x.fill_(7)
    recording.replay()
    assert recording.outputs[0].tolist() == [8, 8, 8]


def test_an_input_that_has_moved_is_read_where_it_was():
    module = torch.nn.Linear(2, 2)
    old = module.weight.data
    old.fill_(1)
    recording = record(lambda: module.weight * 1)
    module.weight.data = torch.full((2, 2), 5.0)
    recording.replay()
    assert (recording.outputs[0] == 1).all()


def test_each_replay_writes_the_same_memory():
    x = torch.ones(3)
    recording = record(lambda x: x * 2, x)
    recording.replay()
    held = recording.outputs[0]
    x.fill_(4)
    recording.replay()
    assert held.tolist() == [8, 8, 8]


@pytest.mark.parametrize("how", ["freed", "resized"])
def test_memory_that_is_gone_is_an_error(how):
    x = torch.ones(3)
    recording = record(lambda x: x * 2, x)
    if how == "freed":
        del x
    else:
        x.resize_(100_000)
    with pytest.raises(FreedMemoryError, match=r"12 bytes at 0x[0-9a-f]+.*errors/freed-memory"):
        recording.replay()


def test_the_recording_does_not_need_the_input_object():
    x = torch.ones(3)
    recording = record(lambda x: x * 2, x.view(-1))
    gc.collect()
    recording.replay()
    assert recording.outputs[0].tolist() == [2, 2, 2]


def test_a_strided_an_expanded_and_an_offset_input():
    base = torch.randn(4, 6)
    views = [base.t()[1:], base[:, :1].expand(4, 3), base.as_strided((2, 2), (1, 3), 5)]
    recording = record(lambda *inputs: [each.sin() for each in inputs], *views)
    base.mul_(2)
    recording.replay()
    for got, view in zip(recording.outputs, views, strict=True):
        assert torch.equal(got, view.sin()) and got.stride() == view.sin().stride()


def test_conjugate_and_negative_views():
    z = torch.randn(4, dtype=torch.complex64)
    recording = record(lambda z: (z.conj() * 2, z.conj().imag + 1), z)
    z.mul_(3)
    recording.replay()
    assert torch.equal(recording.outputs[0], z.conj() * 2)
    assert torch.equal(recording.outputs[1], z.conj().imag + 1)


def test_an_output_that_is_an_input_or_a_view_of_one():
    x = torch.ones(4)
    recording = record(lambda x: (x, x[1:], x + 1), x)
    assert recording.outputs[0] is x
    assert recording.outputs[1].data_ptr() == x.data_ptr() + 4
    recording.replay()
    assert x.tolist() == [1, 1, 1, 1]


def test_outputs_that_share_memory_go_on_sharing_it():
    x = torch.ones(4)

    def function(x):
        y = x * 2
        return y, y[2:]

    recording = record(function, x)
    recording.replay()
    recording.outputs[1].fill_(9)
    assert recording.outputs[0].tolist() == [2, 2, 9, 9]


# --- poison ------------------------------------------------------------------------------------------------


def test_memory_that_nobody_has_written_is_poison_at_each_replay():
    recording = record(lambda: (torch.empty(3) + 0, torch.empty(3)))
    for _ in range(2):
        recording.replay()
        assert recording.outputs[0].isnan().all() and recording.outputs[1].isnan().all()
        recording.outputs[1].fill_(5)


def test_what_a_recording_gave_back_is_poison_after_its_replay():
    x = torch.ones(3)
    seen = []

    def function(x):
        inner = x * 2
        seen.append(engine.unowned(inner))
        return inner + 1

    recording = record(function, x)
    recording.replay()
    assert seen[0].isnan().all() and recording.outputs[0].tolist() == [3, 3, 3]


def test_replaying_out_of_order_destroys_what_lies_in_the_shared_pool():
    pool, x = SimulatedPool(), torch.ones(3)
    first = record(lambda x: (x * 2) + 1, x, pool=pool)
    second = record(lambda x: x * 7, x, pool=pool)
    first.replay()
    second.replay()
    assert second.outputs[0].tolist() == [7, 7, 7]
    first.replay()
    assert second.outputs[0].isnan().all(), "the first one's inner result lies there"


def test_pools_of_their_own_do_not_meet():
    x = torch.ones(3)
    first, second = record(lambda x: (x * 2) + 1, x), record(lambda x: x * 7, x)
    second.replay()
    first.replay()
    assert second.outputs[0].tolist() == [7, 7, 7]


def test_unowned_tensors_let_the_memory_go():
    pool, x = SimulatedPool(), torch.ones(3)
    first = record(lambda x: x * 2, x, pool=pool)
    first.replay()
    shown = engine.unowned(first.outputs[0])
    assert shown.tolist() == [2, 2, 2]
    address = first.outputs[0].data_ptr()
    first.outputs.clear()
    second = record(lambda x: x * 7, x, pool=pool)
    assert second.outputs[0].data_ptr() == address
    second.replay()
    assert shown.tolist() == [7, 7, 7]
    second.release()
    first.release()
    assert shown.isnan().all()


# --- random numbers ----------------------------------------------------------------------------------------


def test_capturing_draws_nothing_and_each_replay_draws_on():
    torch.manual_seed(3)
    expected = [torch.randn(4) for _ in range(3)]
    torch.manual_seed(3)
    recording = record(lambda: torch.randn(4))
    for value in expected:
        recording.replay()
        assert torch.equal(recording.outputs[0], value)


def test_a_registered_generator_draws_on():
    def function():
        return torch.rand(4, generator=generator)

    generator = torch.Generator().manual_seed(5)
    expected = [function() for _ in range(3)]
    generator.manual_seed(5)
    recording = record(function, generators=[generator])
    for value in expected:
        recording.replay()
        assert torch.equal(recording.outputs[0], value)


def test_other_generators_are_refused():
    generator = torch.Generator().manual_seed(5)
    with pytest.raises(
        CaptureRefusedError, match=r"aten\.rand\.generator \(test_recording\.py:\d+\).*generators="
    ):
        record(lambda: torch.rand(4, generator=generator))
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(5).get_state())


@pytest.mark.parametrize(
    "touch",
    [
        lambda: torch.manual_seed(1),
        lambda: torch.get_rng_state(),
        lambda: torch.random.set_rng_state(torch.Generator().get_state()),
        lambda: torch.default_generator.manual_seed(1),
        lambda: torch.random.fork_rng().__enter__(),
    ],
    ids=["manual_seed", "get_rng_state", "set_rng_state", "the generator itself", "fork_rng"],
)
def test_random_state_touched_on_the_host_is_refused(touch):
    before = torch.get_rng_state()

    def function():
        touch()
        return torch.rand(2)

    with pytest.raises(CaptureRefusedError) as caught:
        record(function)
    assert caught.value.refusal.code == "host-random-state"
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(0)  # not refused any more


places = torch.tensor([1, 2])


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda x: x.sum().item(), "host-read"),
        (lambda x: 1 if x[0] > 0 else 2, "host-read"),
        (lambda x: x[x > 0], "mask-index"),
        (lambda x: x.nonzero(), "data-dependent-shape"),
        (lambda x: x.tolist(), "host-copy"),
        (lambda x: x.detach().numpy(), "host-copy"),
        (lambda x: x.cpu() + 1, "host-copy"),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), "pageable-copy"),
        (lambda x: x.tensor_split(torch.tensor([1])), "pageable-copy"),
        (lambda x: x.tensor_split(places), "host-copy"),
        (lambda x: x.to_sparse(), "sparse-layout"),
    ],
)
def test_refused_when_captured(function, code):
    with pytest.raises(CaptureRefusedError) as caught:
        record(function, torch.ones(3))
    assert caught.value.refusal.code == code


def test_a_refusal_names_operation_reason_line_and_page():
    with pytest.raises(CaptureRefusedError) as caught:
        record(lambda x: x.nonzero(), torch.ones(3))
    line = test_a_refusal_names_operation_reason_line_and_page.__code__.co_firstlineno + 2
    text = str(caught.value)
    assert text.startswith(
        f"aten.nonzero.default (test_recording.py:{line}) can't be captured in a CUDA graph: returns"
    )
    assert text.endswith("See errors/capture-refused")
    assert caught.value.source == f"test_recording.py:{line}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.refusal) == (text, caught.value.refusal)


def test_a_refusal_that_the_function_swallows_is_still_one():
    def function(x):
        with contextlib.suppress(CaptureRefusedError):
            x.nonzero()
        return 1

    with pytest.raises(CaptureRefusedError, match=r"aten\.nonzero"):
        record(function, torch.ones(3))


@pytest.mark.parametrize("failure", ["refusal", "error"])
def test_a_capture_that_fails_leaves_nothing_behind(failure):
    gc.collect()
    x, held = torch.ones(3), held_bytes()
    pool = SimulatedPool()
    state = torch.get_rng_state()

    def function(x):
        x.add_(torch.rand(3))
        if failure == "refusal":
            return x.nonzero()
        raise KeyError("the function's own")

    with pytest.raises((CaptureRefusedError, KeyError)):
        record(function, x, pool=pool)
    gc.collect()
    assert x.tolist() == [1, 1, 1] and torch.equal(state, torch.get_rng_state())
    assert (pool.allocated_bytes, pool.reserved_bytes, held_bytes()) == (0, 0, held)
    record(lambda x: x + 1, x, pool=pool).replay()


def test_the_value_of_a_host_scalar_is_frozen():
    scale = as_host(torch.tensor(2.0))
    x = torch.ones(3)
    recording = record(lambda x, scale: x * (scale + 1), x, scale)
    scale.fill_(50)
    recording.replay()
    assert recording.outputs[0].tolist() == [3, 3, 3]
    assert recording.operations == ["aten.mul.Tensor"]


def test_host_vectors_and_copies_to_the_host_are_refused():
    x, host = torch.ones(3), as_host(torch.ones(3))
    with pytest.raises(CaptureRefusedError, match="host memory"):
        record(lambda x, host: x + host, x, host)
    target = as_host(torch.zeros(()))
    with pytest.raises(CaptureRefusedError, match="copies from the device to host memory"):
        record(lambda x: target.copy_(x.sum()), x)


def test_replay_while_capturing_is_refused():
    x = torch.ones(3)
    inner = record(lambda x: x * 2, x)

    def function(x):
        inner.replay()
        return inner.outputs[0] + 1

    with pytest.raises(CaptureRefusedError, match="launches a graph while another"):
        record(function, x)


# --- memory whose size changes -----------------------------------------------------------------------------


def test_a_result_argument_grows_into_the_pool():
    x, out = torch.ones(3), torch.empty(0)
    pool = SimulatedPool()
    recording = record(lambda x: torch.add(x, 1, out=out), x, pool=pool)
    assert recording.outputs[0] is out and pool.owns(out.data_ptr())
    x.fill_(4)
    recording.replay()
    assert out.tolist() == [5, 5, 5]


def test_a_resized_tensor_keeps_its_first_elements():
    x = torch.ones(3)

    def function(x):
        y = x * 2
        y.resize_(1000)
        y[3:].fill_(0)
        return y

    recording = record(function, x)
    x.fill_(4)
    recording.replay()
    assert recording.outputs[0][:4].tolist() == [8, 8, 8, 0]


def test_another_shape_at_replay_is_an_error(monkeypatch):
    from aot_cudagraphs import refusals

    monkeypatch.setattr(refusals, "RULES", ())
    x = torch.ones(3)
    recording = record(lambda x: x.nonzero(), x)
    x[0] = 0
    with pytest.raises(ReplayMismatchError, match=r"aten\.nonzero.*sizes \(2, 1\).*expected \(3, 1\)"):
        recording.replay()


# --- what surrounds capture and replay ---------------------------------------------------------------------


def test_views_and_metadata_are_not_recorded():
    def function(x):
        y = x.view(2, 2).t().detach()
        y.unsqueeze_(0)
        return y.sin()

    recording = record(function, torch.ones(4))
    assert recording.operations == ["aten.sin.default"]


def test_recorded_in_inference_mode_and_replayed_outside():
    x, weight, bias = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)
    with torch.inference_mode():
        recording = record(torch.nn.functional.linear, x, weight, bias)
        expected = torch.nn.functional.linear(x, weight, bias)
    recording.replay()
    assert torch.equal(recording.outputs[0], expected)


def test_a_replay_is_not_seen_by_autocast_autograd_and_modes():
    x, weight = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    recording = record(lambda x, weight: x @ weight, x, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16), FlopCounterMode(display=False) as flops:
        recording.replay()
    assert flops.get_total_flops() == 0
    assert torch.equal(recording.outputs[0], x @ weight)


def test_autocast_while_recording_is_part_of_what_is_recorded():
    x, weight = torch.randn(4, 4), torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        recording = record(torch.mm, x, weight)
        expected = torch.mm(x, weight)
    recording.replay()
    assert torch.equal(recording.outputs[0], expected) and expected.dtype is torch.bfloat16


def test_released_recordings_give_their_memory_back():
    gc.collect()
    held, pool, x = held_bytes(), SimulatedPool(), torch.ones(3)
    recording, other = (record(lambda x: x * 2, x, pool=pool) for _ in range(2))
    recording.release()
    recording.release()
    assert pool.allocated_bytes == 512
    with pytest.raises(ReleasedRecordingError, match="Record again"):
        recording.replay()
    del other
    assert held_bytes() == held


def test_peak_memory_is_that_of_eager():
    """A chain holds two values at a time, whatever its length."""
    pool = SimulatedPool()

    def chain(x):
        for _ in range(20):
            x = x * 1.1
        return x

    x = torch.ones(1024)
    recording = record(chain, x, pool=pool)
    assert (pool.peak_bytes, pool.allocated_bytes) == (2 * 4096, 4096)
    recording.replay()
    assert pool.peak_bytes == 2 * 4096


def test_warming_up_runs_for_good():
    x = torch.ones(3)
    returned = engine.warm_up(lambda boxed: boxed[0].add_(1), [x])
    assert returned is x and x.tolist() == [2, 2, 2]


def test_what_it_is_available_for():
    assert engine.available_for(torch.device("cpu")) and not engine.available_for(torch.device("cuda"))
