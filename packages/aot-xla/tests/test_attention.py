"""Attention as it is spelled out, compared with the CPU's kernel and with autograd through the formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aot_xla.attention import attention, attention_backward

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [5, 7])
def test_output_and_gradients(is_causal, scale, masked, length):
    if is_causal and masked:
        pytest.skip("waits for a torch that takes both: it refuses them together")
    query = torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True)
    key, value = (torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = torch.randn(length, 5, dtype=torch.float64) if masked else None
    inputs = (query, key, value)
    out, sums = attention(*inputs, 0.0, is_causal, attn_mask=mask, scale=scale)
    expected, kernel_sums = KERNEL(*inputs, 0.0, is_causal, attn_mask=mask, scale=scale)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(sums, kernel_sums.to(sums.dtype), rtol=1e-5, atol=1e-6)

    grad = torch.randn_like(out)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        reference = F.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=is_causal, scale=scale)
    wanted = torch.autograd.grad(reference, inputs, grad)
    got = attention_backward(grad, *inputs, out, sums, 0.0, is_causal, attn_mask=mask, scale=scale)
    torch.testing.assert_close(got, wanted)


def test_half_precision_accumulates_in_float():
    query, key, value = (torch.randn(1, 1, 64, 16).bfloat16() for _ in range(3))
    out, sums = attention(query, key, value)
    assert (out.dtype, sums.dtype) == (torch.bfloat16, torch.float32)
    exact = F.scaled_dot_product_attention(query.double(), key.double(), value.double())
    torch.testing.assert_close(out.double(), exact, rtol=2**-8, atol=2**-8)
