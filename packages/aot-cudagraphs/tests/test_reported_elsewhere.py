"""What people have reported of CUDA graphs elsewhere, one test each, as far as a simulator can show it.

Side-stream fork and join (pytorch/pytorch#180396, #185546) needs streams, which it has none of.
"""

from __future__ import annotations

import gc
import threading

import models
import pytest
import scenarios
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from training import assert_identical, compiled, eager_peak, regression, train, twin

import aot_core
import aot_cudagraphs
from aot_cudagraphs import CudaGraphModule, apply_cuda_graphs, partition
from aot_cudagraphs.lanes import MAX_LANES, all_lanes
from aot_cudagraphs.simulator import held_bytes


@pytest.fixture(autouse=True)
def apart():
    yield
    torch._dynamo.reset()
    gc.collect()


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def batches(count=6):
    return [torch.randn(4, 8) for _ in range(count)]


@pytest.mark.parametrize("outputs", ["clone", "pool"])
def test_pytorch_169545_gradients_that_are_kept_stay(outputs):
    """https://github.com/pytorch/pytorch/issues/169545: gradients were overwritten by the next step."""
    model = small()
    reference = twin(model)
    function = compiled(model, outputs=outputs)
    kept, expected = [], []
    for x in batches():
        for one, by, into in ((model, function, kept), (reference, reference, expected)):
            regression(by, x).backward()
            into += [parameter.grad for parameter in one.parameters()]
            for parameter in one.parameters():
                parameter.grad = None
    assert_identical(kept, expected)


def test_pytorch_181723_gradients_are_the_callers():
    """https://github.com/pytorch/pytorch/issues/181723: static buffers were handed out as gradients."""
    model = small()
    function = compiled(model)
    addresses = []
    grads = []
    for x in batches():
        regression(function, x).backward()
        grads += [parameter.grad for parameter in model.parameters()]
        addresses += [grad.data_ptr() for grad in grads[-4:]]
        for parameter in model.parameters():
            parameter.grad = None
    assert len(set(addresses)) == len(addresses)


# Dynamo reads the gradient of what it is given, which is no leaf here.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(
    ("warmup", "outputs"), [(0, "pool"), (1, "clone"), (1, "pool"), (2, "pool"), (3, "clone")]
)
def test_pytorch_160281_152887_a_function_of_its_own_result(warmup, outputs):
    """https://github.com/pytorch/pytorch/issues/160281 and 152887: ``f(f(x))`` failed, by the number of warm-ups."""
    model = small()
    reference = twin(model)
    function = compiled(model, warmup=warmup, outputs=outputs)
    for x in batches():
        regression(lambda x: function(function(x)), x).backward()
        regression(lambda x: reference(reference(x)), x).backward()
        assert_identical([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])


def test_pytorch_122192_one_function_of_anothers_result():
    """https://github.com/pytorch/pytorch/issues/122192: ``g(f(x))`` read what the second had overwritten."""
    one, other = small(), small()
    f, g = compiled(one, outputs="pool"), compiled(other, outputs="pool")
    with torch.no_grad():
        for x in batches(8):
            y = f(x)
            z = g(y)
            assert_identical([y, z, g(f(z))], [one(x), other(one(x)), other(one(other(one(x))))])


def test_pytorch_84614_dropout_is_not_frozen():
    """https://github.com/pytorch/pytorch/issues/84614: the mask of the capture was used for ever."""
    scenarios.random_numbers_advance()


def test_pytorch_162504_random_numbers_of_a_checkpoint():
    """https://github.com/pytorch/pytorch/issues/162504: recomputation drew other numbers than the forward."""

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()
    reference = twin(model)
    data = batches(8)
    expected = train(reference, compiled(reference, "aot_eager"), data)
    assert_identical(train(model, compiled(model), data), expected)


def test_pytorch_121861_103985_written_inputs_keep_their_graphs():
    """https://github.com/pytorch/pytorch/issues/121861 and 103985: a written input turned graphs off."""
    decoder = models.Decoder()
    with torch.no_grad():
        function = compiled(decoder)
        for _ in range(4):
            function(torch.randn(16))
    (graph,) = aot_cudagraphs.captured_graphs()
    assert graph.partition.share == 1.0 and graph.num_graphs == 1


def test_pytorch_119241_a_number_on_the_host_disables_nothing():
    """https://github.com/pytorch/pytorch/issues/119241: one 0-dim CPU tensor, and nothing was captured."""
    scenarios.numbers_on_the_host_are_read()


def test_pytorch_119640_196385_sizes_do_not_add_up_without_end():
    """https://github.com/pytorch/pytorch/issues/119640 and 196385: each new size left a graph, or recorded anew."""
    run = scenarios.module(lambda x: [x * 2], torch.randn(1), max_graphs=4, warmup=0)
    recorded = []
    for i in range(200):
        x = torch.randn(1 + i % 50)
        assert torch.equal(run(x)[0], x * 2)
        assert run.num_graphs <= 4
        recorded.append(set(map(id, run.recordings)))
    # After the first rounds nothing is recorded any more, whatever comes.
    assert recorded[100] == recorded[-1]


def test_pytorch_124506_nothing_is_skipped_silently():
    """https://github.com/pytorch/pytorch/issues/124506: graphs were skipped and nobody was told."""

    def f(x):
        y = torch.linalg.eigvals(x.sin()).real.cos()
        return y * 2

    with aot_core.record_reports() as reports, torch.no_grad():
        compiled(f)(torch.randn(3, 3))
    (split,) = [d for report in reports for d in report.decisions if d.action == "split"]
    assert split.code == "host-algorithm" and "linalg_eig" in split.detail
    assert split.source is not None and split.source.startswith("test_reported_elsewhere.py:")


def test_pytorch_123177_threads():
    """https://github.com/pytorch/pytorch/issues/123177: calls from another thread failed an assertion."""
    model = small()
    function = compiled(model)
    for x in batches(3):
        regression(function, x).backward()
    for parameter in model.parameters():
        parameter.grad = None
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(10):
            x = torch.randn(4, 8, generator=generator)
            got = torch.autograd.grad(regression(function, x), list(model.parameters()))
            expected = torch.autograd.grad(regression(model, x), list(model.parameters()))
            if not all(map(torch.equal, got, expected)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_pytorch_104095_memory_goes_with_the_model():
    """https://github.com/pytorch/pytorch/issues/104095: pools outlived the model."""
    model = small()
    function = compiled(model)
    for x in batches(4):
        regression(function, x).backward()
    assert held_bytes() > 0
    del model, function
    torch._dynamo.reset()
    gc.collect()
    assert held_bytes() == 0 and aot_cudagraphs.held_bytes() == 0


def test_pytorch_180395_190308_a_failed_capture_leaves_nothing():
    """https://github.com/pytorch/pytorch/pull/180395 and 190308: the allocator stayed in capture."""
    scenarios.refused_captures_leave_no_trace()
    gc.collect()
    assert held_bytes() == 0


def test_pytorch_154824_an_input_that_is_an_output():
    """https://github.com/pytorch/pytorch/issues/154824"""

    def f(x, y):
        return x, y + 1, y

    function = compiled(f)
    with torch.no_grad():
        for x in batches():
            y = torch.randn(3)
            a, b, c = function(x, y)
            assert a is x and c is y and torch.equal(b, y + 1)


def test_vllm_53915_inputs_that_moved_are_read_where_they_are():
    """https://github.com/vllm-project/vllm/pull/53915: replays went on reading the old address."""
    scenarios.inputs_move()


def test_thunder_727_no_item_is_captured():
    """https://github.com/Lightning-AI/lightning-thunder/issues/727: ``.item()`` kept its first answer."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    graph.output([doubled, graph.call_function(torch.ops.aten.equal.default, (x, doubled))])
    part = partition(torch.fx.GraphModule({}, graph))
    assert [refused.refusal.code for refused in part.refused] == ["host-read"]


def test_thunder_1533_peak_memory():
    """https://github.com/Lightning-AI/lightning-thunder/issues/1533: graphs took more memory than eager."""
    model = models.mlp()
    peak = eager_peak(twin(model), torch.randn(64, 32))
    function = compiled(lambda x: regression(model, x))
    for _ in range(6):
        function(torch.randn(64, 32)).backward()
    (lanes,) = [lanes for lanes in all_lanes() if list(lanes)]
    assert sum(lane.pool.peak_bytes for lane in lanes) <= 1.05 * peak


def test_megatron_1279_422_forwards_before_backwards():
    """https://github.com/NVIDIA/Megatron-LM/issues/1279 and 422: NaN gradients under 1F1B schedules."""
    model = small()
    reference = twin(model)
    function = compiled(model)
    for schedule in ("FFBFBFBB", "FFFFBBBB", "FBFB", "FFFBBB", "FFBFBFBB"):
        for one, by in ((model, function), (reference, reference)):
            torch.manual_seed(7)
            losses = []
            for letter in schedule:
                if letter == "F":
                    losses.append(regression(by, torch.randn(4, 8)))
                else:
                    losses.pop(0).backward()
            assert all(parameter.grad.isfinite().all() for parameter in one.parameters())
        assert_identical([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])


def test_transformer_engine_2543_memory_has_a_limit():
    """https://github.com/NVIDIA/TransformerEngine/issues/2543: a graph for each microbatch, until none fitted."""
    run = scenarios.module(lambda x: [x * 2], torch.randn(4), outputs="pool")
    kept = [run(torch.full((4,), float(i)))[0] for i in range(40)]
    assert_identical(kept, [torch.full((4,), 2.0 * i) for i in range(40)])
    assert sum(len(list(lanes)) for lanes in all_lanes()) <= MAX_LANES


# --- where the historic CudaGraphModule was wrong ----------------------------------------------------------


def test_running_statistics_of_batch_norm():
    norm, mean, var = nn.BatchNorm1d(8), torch.zeros(8), torch.ones(8)

    def f(x, mean, var):
        return list(torch.ops.aten.native_batch_norm(x, norm.weight, norm.bias, mean, var, True, 0.1, 1e-5))

    with torch.no_grad():
        gm = make_fx(f, tracing_mode="real")(torch.randn(4, 8), mean.clone(), var.clone())
        run = CudaGraphModule(gm, scenarios.SIMULATED)
        for _ in range(5):
            scenarios.same(f, run, torch.randn(4, 8), mean, var)


def test_writes_to_lists_of_tensors():
    def f(a, b, x):
        torch._foreach_add_([a, b], [x, x * 2])
        return [a + b]

    gm = make_fx(f, tracing_mode="real")(torch.randn(3), torch.randn(3), torch.randn(3))
    run = CudaGraphModule(gm, scenarios.SIMULATED)
    a = torch.zeros(3)
    for _ in range(5):
        scenarios.same(f, run, a, torch.randn(3), torch.randn(3))


def test_a_masked_write_to_an_input():
    def f(x, y):
        x.index_put_([y > 0], torch.zeros(()))
        return [x.exp() + y.sin()]

    gm = make_fx(f, tracing_mode="fake")(torch.randn(3, 3), torch.randn(3, 3))
    run = apply_cuda_graphs(gm, options=scenarios.SIMULATED)
    assert [refused.refusal.code for refused in run.partition.refused] == ["mask-index"]
    for _ in range(5):
        scenarios.same(f, run, torch.randn(3, 3), torch.randn(3, 3))


def test_as_strided_of_strided_and_expanded_inputs():
    def f(x):
        return [torch.ops.aten.as_strided(x, [2, 2], [1, 2]) * 2, x + 1]

    for make in (
        lambda: torch.randn(4, 4).t(),
        lambda: torch.randn(4, 8)[:, ::2],
        lambda: torch.randn(5).expand(4, 5),
    ):
        run = CudaGraphModule(make_fx(f, tracing_mode="real")(make()), scenarios.SIMULATED)
        for _ in range(4):
            scenarios.same(f, run, make())


def test_outputs_that_share_memory_and_are_written():
    scenarios.relations_of_outputs()


def test_shapes_that_would_broadcast_and_dtypes_that_would_be_cast():
    scenarios.shapes_dtypes_and_strides_differ()


def test_four_threads():
    scenarios.threads_do_not_meet()
