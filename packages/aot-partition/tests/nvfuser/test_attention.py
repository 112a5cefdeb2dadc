"""Attention, which is claimed on request only."""

from __future__ import annotations

import pytest
import torch
from presence import needs_nvfuser
from regions import graph_of, reference_executor

from aot_partition.nvfuser.testing.engines import PrintedEngine
from aot_partition.nvprims import claim

aten = torch.ops.aten
attend = aten._scaled_dot_product_flash_attention.default
EXPECTED = {torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}, torch.float16: {"rtol": 3e-3, "atol": 3e-3}}


def operands(dtype=torch.bfloat16, queries=6, keys=6):
    sizes = ((2, 3, length, 8) for length in (queries, keys, keys))
    return [torch.randn(size).to(dtype) for size in sizes]


def refused(function, *inputs, allow=("sdpa",)):
    graph = graph_of(function, inputs)
    return list(claim(graph, allow=allow, refuse=reference_executor().refuse).refused.values())


def ran(function, inputs, engine=None):
    executor = reference_executor(engine)
    graph = graph_of(function, inputs)
    assert claim(graph, allow=("sdpa",), refuse=executor.refuse).refused == {}
    return executor.compile_region(graph, [])(list(inputs))


def check(inputs, engine=None, **said):
    """Compare with eager's attention in float64."""
    (got,) = ran(lambda q, k, v: attend(q, k, v, **said)[0] * 2, inputs, engine)
    wanted = 2 * torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in inputs), **said)
    assert got.dtype is inputs[0].dtype
    torch.testing.assert_close(got.double(), wanted, **EXPECTED[got.dtype])


@pytest.mark.parametrize("dtype", EXPECTED)
@pytest.mark.parametrize("said", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_values_are_eagers_in_float64(dtype, said):
    check(operands(dtype), **said)


def test_queries_may_be_fewer_than_keys():
    check(operands(queries=3, keys=7))


def test_the_sum_of_weights():
    inputs = operands()
    (got,) = ran(lambda q, k, v: attend(q, k, v, scale=1.0)[1] + 1, inputs)
    q, k, _ = (x.double() for x in inputs)
    wanted = torch.logsumexp(q @ k.mT, -1) + 1
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)


@needs_nvfuser
def test_nvfuser_takes_it():
    engine = PrintedEngine()
    check(operands(), engine, is_causal=True, scale=1 / 3)
    assert "sdpfa_fwd" in engine.texts[0]


def test_it_is_left_to_aten_unless_asked_for():
    whys = refused(lambda q, k, v: attend(q, k, v)[0], *operands(), allow=())
    assert "claimed only with sdpa=True" in whys


def test_dropout_and_a_backward_are_left_to_aten():
    """Their random state is in a dtype that no fusion has."""
    whys = refused(lambda q, k, v: attend(q, k, v, 0.1)[0], *operands())
    assert "with dropout" in whys

    def trained(q, k, v):
        out, sums, _, _, queries, keys, state, offset, _ = attend(q, k, v)
        backward = aten._scaled_dot_product_flash_attention_backward.default
        return backward(
            out, q, k, v, out, sums, None, None, queries, keys, 0.0, False, state, offset, scale=1.0
        )[0]

    assert any("uint64" in why or "random state" in why for why in refused(trained, *operands()))
