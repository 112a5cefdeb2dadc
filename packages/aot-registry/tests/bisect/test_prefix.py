"""A graph cut anywhere does what the whole does."""

import pytest
import torch
from small_models import build
from torch import fx

from aot_registry.bisecting.prefix import Cut, copy_graph, legal_cuts, steps
from aot_registry.bisecting.search import first_that


def captured(model, *inputs):
    found = []

    def keep(gm, example_inputs):
        found.append((copy_graph(gm), [x.detach().clone() for x in example_inputs]))
        return gm.forward

    torch.compiler.reset()
    torch.compile(model, backend=keep)(*inputs)
    torch.compiler.reset()
    return found


@pytest.mark.parametrize("name", ["attention", "two_heads", "normed"])
def test_every_cut_gives_the_same(name):
    ((gm, inputs),) = captured(*build(name))
    expected = gm(*inputs)
    cuts = legal_cuts(gm)
    assert cuts[-1] == len(steps(gm)) > 3
    for count in cuts:
        cut = Cut(gm, count)
        found = cut.joined(cut.first.forward)(inputs)
        assert all(torch.equal(want, have) for want, have in zip(expected, found, strict=True)), count


def test_results_are_taken_apart_with_their_operation():
    ((gm, _),) = captured(*build("attention"))
    chunk = next(step for step in steps(gm) if "chunk" in step[0].name)
    assert len(chunk) == 4


def test_no_cut_inside_a_region():
    def model(x):
        y = torch.sin(x)
        with torch.no_grad():
            z = torch.cos(y) + 1
        return y * z

    ((gm, _),) = captured(model, torch.ones(3, requires_grad=True))
    names = [step[0].target for step in steps(gm)]
    inside = [
        index + 1
        for index, target in enumerate(names)
        if target in (torch.cos,) or "add" in str(target) or "set_grad_enabled" in str(target)
    ][:-1]
    assert inside
    assert not set(inside) & set(legal_cuts(gm))


def test_outputs_keep_their_places():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.add, (a, 1))
    c = graph.call_function(torch.mul, (a, b))
    graph.output((c, a, x))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    cut = Cut(gm, 2)
    value = torch.tensor([-1.0, 2.0])
    first = cut.first(value)
    assert first[0] is None and first[2] is None
    assert first[1].tolist() == [0, 2] and first[3].tolist() == [1, 3]
    assert [each.tolist() for each in cut.joined(cut.first)([value])] == [[0, 6], [0, 2], [-1, 2]]


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_halving_finds_the_first(length):
    for first in range(length):
        tried: list[int] = []

        def shows(number: int, first: int = first, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number >= first

        assert first_that(shows, range(length)) == first
        assert len(tried) <= (length - 1).bit_length()
