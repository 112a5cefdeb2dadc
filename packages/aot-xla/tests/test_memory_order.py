"""Strides and shared memory, put back as a fake tensor promises."""

from __future__ import annotations

import pytest
import torch

from aot_xla import _compat
from aot_xla.memory_order import lay_out, lay_out_together

VIEWS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].expand(2, 5, 4),
    "expanded first": lambda x: x.sum(0, keepdim=True).expand(3, 3, 4),
    "with gaps": lambda x: x[:, ::2, 1:],
    "empty": lambda x: x[:0].transpose(0, 1),
    "one number": lambda x: x[0, 0, 0],
    "size one": lambda x: x[:1].transpose(0, 1),
}


def contiguous(x):
    return x.clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_strides(view):
    promise = view(torch.randn(2, 3, 4))
    got = lay_out(contiguous(promise), promise)
    assert torch.equal(got, promise)
    assert promise.numel() == 0 or got.stride() == promise.stride()
    assert got._base is None


def test_order_of_symbolic_strides(monkeypatch):
    class Symbol:
        def __init__(self, hint):
            self.node = type("Node", (), {"hint": hint})()

    class Promise:
        layout = torch.strided

        def stride(self):
            return (1, Symbol(7))

    got = lay_out(torch.arange(6.0).reshape(2, 3), Promise())
    assert got.stride() == (1, 2)
    assert torch.equal(got, torch.arange(6.0).reshape(2, 3))
    assert _compat.hint(Symbol(7)) == 7


def test_shared_memory():
    base = torch.arange(12.0).reshape(3, 4)
    promises = [base, base.t()[1:], base[1]]
    whole, part, row = lay_out_together([contiguous(p) for p in promises], promises)
    for got, promise in zip((whole, part, row), promises, strict=True):
        assert torch.equal(got, promise)
        assert got.stride() == promise.stride()
    part.fill_(-1)
    assert whole.tolist() == [[0, -1, -1, -1], [4, -1, -1, -1], [8, -1, -1, -1]]
    assert row.tolist() == [4, -1, -1, -1]


def test_other_dtypes_get_memory_of_their_own():
    base = torch.arange(4, dtype=torch.int32)
    promises = [base, base.view(torch.float32)]
    got = lay_out_together([contiguous(p) for p in promises], promises)
    assert [torch.equal(a, b) for a, b in zip(got, promises, strict=True)] == [True, True]
