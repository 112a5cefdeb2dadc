"""A compiled region: which definition it runs, how outputs lie in memory, and what is built how often."""

from __future__ import annotations

import pytest
import torch
from regions import check, graph_of, reference_executor, region_of

from aot_partition.nvfuser.testing.engines import ReferenceEngine

aten = torch.ops.aten


class Scrambling(ReferenceEngine):
    """Gives results that lie in memory in another order than promised."""

    def build(self, definition):
        run = super().build(definition)
        return lambda inputs: [x.t().contiguous().t() if x.dim() == 2 else x for x in run(inputs)]


class Failing(ReferenceEngine):
    def build(self, definition):
        raise RuntimeError("no such kernel")


LAYOUTS = {
    "row-major": lambda: torch.randn(2, 3, 4, 5),
    "channels-last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(5, 4, 3, 2).permute(3, 1, 2, 0),
    "with gaps": lambda: torch.randn(2, 3, 4, 10)[..., ::2],
    "offset": lambda: torch.randn(3, 3, 4, 5)[1:],
    "expanded": lambda: torch.randn(2, 1, 4, 1).expand(2, 3, 4, 5),
    "size one": lambda: torch.randn(2, 1, 4, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x = LAYOUTS[layout]()
    check(lambda x: (x * 2 + 1, x.sum(1), torch.exp(x)), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_was_not_traced_gets_a_definition_of_its_own(layout):
    region = region_of(lambda x: (x + 1).sum(-1), torch.randn(2, 3, 4, 5))
    x = LAYOUTS[layout]()
    if x.shape == (2, 3, 4, 5):
        torch.testing.assert_close(region([x])[0], (x + 1).sum(-1))


def test_one_definition_serves_all_sizes():
    def function(x):
        return torch.exp(x * 2) / torch.exp(x * 2).sum(1, keepdim=True)

    executor = reference_executor()
    region = region_of(function, torch.randn(4, 6), executor=executor, mode="symbolic")
    for rows, columns in ((4, 6), (3, 5), (7, 2), (100, 33)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(region([x])[0], function(x))
    assert executor.cache.misses == 1


def test_sizes_are_computed_from_symbols():
    executor = reference_executor()

    def function(x):
        flat = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
        return (flat * 2).sum(0, keepdim=True).expand(x.shape[1], x.shape[2]) + 1

    gm = graph_of(function, [torch.randn(4, 6, 3)], "symbolic")
    region = executor.compile_region(_without_numbers(gm), [])
    for shape in ((4, 6, 3), (2, 9, 5)):
        x = torch.randn(shape)
        torch.testing.assert_close(region([x])[0], function(x))
    assert executor.cache.misses == 1


def _without_numbers(gm):
    """Drop what computes sizes: a region gets them from the sizes of its tensors."""
    for node in reversed(gm.graph.nodes):
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.SymInt | int):
            for user in list(node.users):
                arguments, named = torch.fx.map_arg(
                    (user.args, user.kwargs),
                    lambda each: each.meta["val"] if each is node else each,  # noqa: B023
                )
                user.args, user.kwargs = arguments, named
            gm.graph.erase_node(node)
    return gm


def test_identical_regions_are_built_once():
    executor = reference_executor()
    for _ in range(24):
        region_of(lambda x: torch.tanh(x * 0.5) + 1, torch.randn(8, 8), executor=executor)
    assert (executor.cache.misses, len(executor.cache)) == (1, 1)
    region_of(lambda x: torch.tanh(x * 0.25) + 1, torch.randn(8, 8), executor=executor)
    assert len(executor.cache) == 2


def test_sizes_that_were_seen_are_looked_up():
    executor = reference_executor()
    region = region_of(lambda x: x + 1, torch.randn(3, 4), executor=executor)
    for _ in range(5):
        region([torch.randn(3, 4)])
    seen = executor.cache.hits
    for _ in range(5):
        region([torch.randn(3, 4)])
    assert executor.cache.hits == seen


def test_results_that_lie_elsewhere_are_laid_out_anew():
    check(lambda x: x * 2, torch.randn(3, 4), executor=reference_executor(Scrambling()))


def test_a_number_on_the_cpu():
    """Any region may read one; it is defined as such."""
    region = check(lambda x, s: x * s + 1, torch.randn(3), torch.tensor(2.5))
    assert "is_cpu=True" in region.translation.definition.source


def test_a_result_is_written_over_an_input():
    def function(x, y):
        aten.copy_.default(x, x * 2 + y)
        return y + 1

    region = region_of(function, torch.zeros(4), torch.ones(4))
    x, y = torch.arange(4.0), torch.ones(4)
    (other,) = region([x, y])
    assert x.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert other.tolist() == [2.0] * 4


def test_what_the_engine_raises_is_passed_on():
    with pytest.raises(RuntimeError, match="no such kernel"):
        region_of(lambda x: x + 1, torch.randn(3), executor=reference_executor(Failing()))


def test_inputs_that_are_returned():
    x = torch.randn(3)
    one, other, again = region_of(lambda x: (x, x + 1, x), x)([x])
    assert one is x and again is x
    torch.testing.assert_close(other, x + 1)
