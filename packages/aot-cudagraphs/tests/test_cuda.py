"""On a device: what the simulator can't show. Run by the session ``gpu``."""

from __future__ import annotations

import gc

import models
import pytest
import torch
from training import STEPS, assert_identical, next_token, regression, train, twin

import aot_cudagraphs
from aot_cudagraphs import CaptureRefusedError, partition
from aot_cudagraphs.cuda_engine import CudaEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="waits for a CUDA device"),
]


@pytest.mark.parametrize("outputs", ["clone", "pool"])
@pytest.mark.parametrize(("make", "loss"), [(models.mlp, regression), (models.GPT, next_token)])
def test_twelve_steps_are_eagers(make, loss, outputs):
    model = make().cuda()
    reference = twin(model)
    if loss is regression:
        batches = [torch.randn(16, 32, device="cuda") for _ in range(STEPS)]
    else:
        batches = [torch.randint(0, 48, (4, 17), device="cuda") for _ in range(STEPS)]
    expected = train(reference, torch.compile(reference, backend="aot_eager"), batches, loss)
    function = torch.compile(model, backend=aot_cudagraphs.aot_cudagraphs, options={"outputs": outputs})
    assert_identical(train(model, function, batches, loss), expected)
    assert aot_cudagraphs.held_bytes() > 0
    del function
    torch._dynamo.reset()
    gc.collect()
    assert aot_cudagraphs.held_bytes() == 0


def test_a_refused_capture_leaves_the_device_usable():
    engine = CudaEngine()
    x = torch.ones(4, device="cuda")
    with pytest.raises(CaptureRefusedError):
        engine.record(lambda inputs: [inputs[0].nonzero()], [x], engine.new_pool(x.device))
    pool = engine.new_pool(x.device)
    recording = engine.record(lambda inputs: [inputs[0] * 2], [x], pool)
    recording.replay()
    assert torch.equal(recording.outputs[0], x * 2)
    recording.release()
    gc.collect()
    torch.cuda.empty_cache()
    assert pool.reserved_bytes == 0


def test_a_number_on_the_host_is_read_in_each_call():
    def f(x, s):
        return (x * s + s).relu()

    function = torch.compile(f, backend=aot_cudagraphs.aot_cudagraphs)
    with torch.no_grad():
        for i in range(6):
            x, s = torch.randn(8, device="cuda"), torch.tensor(float(i))
            assert torch.equal(function(x, s), f(x, s))


def test_replays_on_two_streams_wait_for_each_other():
    def f(x):
        return (x @ x).relu().sum(0)

    function = torch.compile(f, backend=aot_cudagraphs.aot_cudagraphs)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    x = torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    results = []
    with torch.no_grad():
        for i in range(20):
            with torch.cuda.stream(streams[i % 2]):
                results.append((function(x + i), f(x + i)))
    torch.cuda.synchronize()
    for got, expected in results:
        assert torch.equal(got, expected)


def test_a_partition_of_what_runs_on_the_device():
    from torch.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(lambda x: [x.sin().nonzero().float().cos()], tracing_mode="fake")(
        torch.ones(3, device="cuda")
    )
    assert partition(gm).device == torch.device("cuda", 0)
