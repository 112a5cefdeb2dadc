"""One capture at a time; whatever other threads do meanwhile goes on as if there were none."""

from __future__ import annotations

import threading

import pytest
import torch

from aot_cudagraphs import CaptureRefusedError
from aot_cudagraphs.simulator import SimulatedEngine, SimulatedPool

engine = SimulatedEngine()


def in_thread(function):
    """Run a function in another thread; return its result or raise its exception here."""
    found = {}

    def run():
        try:
            found["result"] = function()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in found:
        raise found["error"]
    return found["result"]


def while_capturing(other):
    """Capture something, call ``other`` in another thread in the midst of it, and return what that returns."""
    x, found = torch.ones(3), []

    def function(boxed):
        y = boxed[0] * 2
        found.append(in_thread(other))
        return y + 1

    recording = engine.record(function, [x], SimulatedPool())
    recording.replay()
    assert recording.outputs[0].tolist() == [3, 3, 3]
    assert recording.operations == ["aten.mul.Tensor", "aten.add.Tensor"]
    return found[0]


def test_a_second_capture_is_refused_and_the_first_goes_on():
    def other():
        with pytest.raises(CaptureRefusedError) as caught:
            engine.record(lambda boxed: torch.ones(3), [], SimulatedPool())
        return caught.value.refusal.code

    assert while_capturing(other) == "concurrent-capture"


def test_other_threads_run_read_and_seed():
    def other():
        generator = torch.Generator()
        torch.get_rng_state()
        return torch.rand(3, generator=generator).add_(1).sum().item() > 0

    assert while_capturing(other) is True


def test_other_threads_replay():
    x = torch.ones(3)
    recording = engine.record(lambda boxed: boxed[0] * 5, [x], SimulatedPool())
    while_capturing(recording.replay)
    assert recording.outputs[0].tolist() == [5, 5, 5]


def test_recordings_of_one_pool_from_several_threads():
    """Captures wait for nobody; each thread tries until it is let in, and all results are right."""
    pool, barrier = SimulatedPool(), threading.Barrier(4)
    results = {}

    def run(number):
        x = torch.full((50,), float(number))
        barrier.wait()
        while True:
            try:
                recording = engine.record(lambda boxed: boxed[0] * 2, [x], pool)
                break
            except CaptureRefusedError:
                continue
        recording.replay()
        results[number] = recording.outputs[0].tolist()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [2.0 * number] * 50 for number in range(4)}
