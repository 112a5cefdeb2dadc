"""The CPU's fused attention, spelled out: a model traced on the CPU holds it, and XLA knows nothing of it.

Per head, with ``scale`` = 1/√width unless it is given::

    scores = scale · query keyᵀ + mask       weights = exp(scores − logsumexp)       output = weights value

The gradient of a softmax is ``weights · (g − Σ weights g)``, and the sum is that of ``grad_output · output`` over the
width (Dao et al., FlashAttention, 2022, appendix B): the backward needs no weights saved.
"""

from __future__ import annotations

import torch

__all__ = ["attention", "attention_backward"]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten._scaled_dot_product_flash_attention_for_cpu``, which admits no dropout.

    Args:
        query: Of shape (batch, heads, length, width).
        key: Of shape (batch, heads, other length, width).
        value: As ``key``.
        dropout_p: 0.
        is_causal: A query sees the keys up to its own position.
        attn_mask: Added to the scores.
        scale: Of the scores.

    Returns:
        The output, of the query's shape and dtype, and the logarithm of the scores' sums, (batch, heads, length), of at
        least float32.
    """
    scores = _scores(query, key, is_causal, attn_mask, scale)
    sums = torch.logsumexp(scores, -1)
    output = torch.exp(scores - sums.unsqueeze(-1)) @ _accumulated(value)
    return output.to(query.dtype), sums


def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``aten._scaled_dot_product_flash_attention_for_cpu_backward``: the gradients of query, key and value."""
    factor = query.size(-1) ** -0.5 if scale is None else scale
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    grad, output = _accumulated(grad_out), _accumulated(out)
    grad_weights = grad @ _accumulated(value).transpose(-2, -1)
    grad_scores = weights * (grad_weights - (grad * output).sum(-1, keepdim=True)) * factor
    return (
        (grad_scores @ _accumulated(key)).to(query.dtype),
        (grad_scores.transpose(-2, -1) @ _accumulated(query)).to(key.dtype),
        (weights.transpose(-2, -1) @ grad).to(value.dtype),
    )


def _scores(
    query: torch.Tensor, key: torch.Tensor, is_causal: bool, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    factor = query.size(-1) ** -0.5 if scale is None else scale
    scores = _accumulated(query) @ _accumulated(key).transpose(-2, -1) * factor
    if is_causal:
        rows = torch.arange(query.size(-2), device=query.device).unsqueeze(-1)
        later = torch.arange(key.size(-2), device=query.device) > rows
        scores = scores.masked_fill(later, float("-inf"))
    return scores if mask is None else scores + mask


def _accumulated(value: torch.Tensor) -> torch.Tensor:
    """Return a value in the precision that sums are taken in."""
    return value.to(torch.promote_types(value.dtype, torch.float32))
