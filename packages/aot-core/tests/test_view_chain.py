from __future__ import annotations

import random

import pytest
import torch

from aot_core.aliasing.memory import geometry_of
from aot_core.aliasing.view_chain import insert_view


def make(base: torch.Tensor, view: torch.Tensor) -> tuple[torch.Tensor, set[str]]:
    """Return the view that the inserted nodes make of the base, and what they are."""
    graph = torch.fx.Graph()
    node = insert_view(graph, graph.placeholder("base"), geometry_of(base), geometry_of(view))
    graph.output(node)
    names = {str(node.target) for node in graph.nodes if node.op.startswith("call")}
    return torch.fx.GraphModule({}, graph)(base), names


def random_view(rng: random.Random, base: torch.Tensor) -> torch.Tensor:
    view = base.view(-1)
    for _ in range(rng.randrange(5)):
        dim = rng.randrange(view.dim()) if view.dim() else 0
        kind = rng.choice(("slice", "split", "swap", "select"))
        if kind == "slice" and view.dim() and view.size(dim) > 1:
            start = rng.randrange(view.size(dim) - 1)
            view = torch.ops.aten.slice.Tensor(
                view, dim, start, rng.randrange(start + 1, view.size(dim) + 1), rng.choice((1, 1, 2))
            )
        elif kind == "split" and view.dim() and view.size(dim) % 2 == 0:
            view = view.unflatten(dim, (view.size(dim) // 2, 2))
        elif kind == "swap" and view.dim() > 1:
            view = view.transpose(dim, rng.randrange(view.dim()))
        elif kind == "select" and view.dim() > 1:
            view = view.select(dim, rng.randrange(view.size(dim)))
    return view


def test_the_view_is_the_one_that_as_strided_makes(seed: int) -> None:
    rng = random.Random(seed)
    plain = 0
    for _ in range(500):
        base = torch.arange(48.0).view(rng.choice(((48,), (6, 8), (2, 3, 8))))
        wanted = random_view(rng, base)
        made, names = make(base, wanted)
        assert geometry_of(made) == geometry_of(wanted) or made.numel() == 0
        torch.testing.assert_close(made, wanted, rtol=0, atol=0)
        assert made.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        plain += not any("as_strided" in name for name in names)
    assert plain > 250


@pytest.mark.parametrize(
    "view",
    [
        lambda b: b[2:7],
        lambda b: b[1:8:3],
        lambda b: b.view(4, 6)[1:3, 2:4],
        lambda b: b.view(4, 6).t(),
        lambda b: b.as_strided((2, 3), (4, 1), 12),
        lambda b: b.view(2, 3, 4).transpose(0, 2),
        lambda b: b[2:7].unsqueeze(0),
        lambda b: b.view(4, 6)[:, 2:3],
        lambda b: b.view(4, 6).t()[:2].unsqueeze(1),
        lambda b: b[3:4],
    ],
)
def test_common_views_need_no_as_strided(view: object) -> None:
    base = torch.arange(24.0)
    wanted = view(base)  # type: ignore[operator]
    made, names = make(base, wanted)
    assert geometry_of(made) == geometry_of(wanted)
    assert not any("as_strided" in name for name in names)


def test_overlapping_views_do() -> None:
    base = torch.arange(8.0)
    wanted = base.as_strided((3, 3), (1, 1), 0)
    made, names = make(base, wanted)
    torch.testing.assert_close(made, wanted)
    assert any("as_strided" in name for name in names)
