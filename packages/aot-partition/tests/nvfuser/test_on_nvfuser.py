"""What only nvFuser itself can say: that it understands what it is told."""

from __future__ import annotations

import random

import pytest
import torch
from presence import HAS_NVFUSER, needs_nvfuser
from regions import check, reference_executor, region_of

from aot_partition.nvfuser.engine import NvFuser
from aot_partition.nvfuser.layouts import layout_of
from aot_partition.nvfuser.testing.engines import PrintedEngine

aten = torch.ops.aten
pytestmark = needs_nvfuser

FUNCTIONS = {
    "layer norm": lambda x: aten.native_layer_norm.default(x, [x.shape[-1]], None, None, 1e-5)[0],
    "softmax": lambda x: torch.exp(x - x.amax(-1, keepdim=True)) / torch.exp(x).sum(-1, keepdim=True),
    "moves": lambda x: torch.cat([x * 2, x.transpose(1, 2)[:, :4, :5].transpose(1, 2) + 1], 1),
    "indexing": lambda x: x.flip(1) * 2 + x.gather(1, x.argmax(1, keepdim=True).expand(2, 5, 4)),
    "factories": lambda x: x + torch.arange(4, device=x.device) * torch.full_like(x, 1 / 3),
    "reductions": lambda x: (x.var(1) + x.mean(1), x.amax(0), x.argmax(2), (x > 0).any(1)),
}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "layer norm"])
def test_what_nvfuser_prints_means_the_same(name):
    x = torch.randn(2, 5, 4)
    engine = PrintedEngine()
    check(FUNCTIONS[name], x, executor=reference_executor(engine))
    assert engine.texts and "nvfuser_fusion" in engine.texts[0]


def test_layouts_are_those_that_nvfuser_computes(seed):
    """nvFuser says -1 for sizes other than 1 as well; ours is faster and knows symbolic sizes."""
    import nvfuser_direct

    draw = random.Random(seed)
    for _ in range(500):
        sizes, strides = random_layout(draw)
        ours = layout_of(sizes, strides)
        contiguity, order = nvfuser_direct.compute_tensor_descriptor(list(sizes), list(strides))
        if has_ties(sizes, strides):
            continue
        places = ours.stride_order or tuple(reversed(range(len(sizes))))
        assert (list(ours.contiguity), list(places)) == (list(contiguity), list(order)), (sizes, strides)


def random_layout(draw):
    rank = draw.randint(1, 5)
    sizes = [draw.choice([1, 2, 3, 5]) for _ in range(rank)]
    order, strides, step = draw.sample(range(rank), rank), [0] * rank, draw.choice([1, 1, 2])
    for i in order:
        strides[i] = step
        step *= sizes[i] * draw.choice([1, 1, 2])
    for i in range(rank):
        if draw.random() < 0.1:
            strides[i] = 0
    return sizes, strides


def has_ties(sizes, strides):
    """Where a dimension says nothing about the order, any place is right for it."""
    return any(size == 1 or stride == 0 for size, stride in zip(sizes, strides, strict=True))


def test_what_nvfuser_refuses_is_an_exception_and_prints_nothing(capfd):
    from aot_partition.nvfuser.definition import Recorder

    recorder = Recorder()
    x = recorder.define_tensor(shape=(-1,), contiguity=(True,), dtype=torch.float32, is_cpu=False)
    recorder.add_output(recorder.ops.permute(x, (0, 1)))
    with pytest.raises(Exception, match=r".+"):
        NvFuser().build(recorder.finish())
    assert "Traceback" not in capfd.readouterr().out


def test_availability_says_what_is_missing():
    from aot_partition.nvfuser.executor import EXECUTOR

    found = EXECUTOR.availability()
    assert found.usable or "no CUDA device" in found.reason


@pytest.mark.skipif(not HAS_NVFUSER, reason="waits for nvFuser: nox -s nvfuser")
@pytest.mark.parametrize("p", [0.25])
def test_dropout_is_built(p):
    engine = PrintedEngine()
    x = torch.ones(8, 8)
    region_of(lambda x: aten.native_dropout.default(x, p, True), x, executor=reference_executor(engine))([x])
    assert "uniform" in engine.texts[0] and "rng_seed" in engine.texts[0]
