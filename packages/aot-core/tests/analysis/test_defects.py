"""Each defect of torch's analyses by the smallest program that shows it, against eager in float64."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import aot_function, nop
from programs import differences, observe

pytestmark = [
    pytest.mark.usefixtures("stock_or_installed"),
    # Dynamo and the making of fake tensors look at the gradient of every view.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    # Inductor's own import.
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
]


def overlapping(training: bool = True):
    leaf = torch.arange(1.0, 9.0, dtype=torch.float64).requires_grad_(training)
    base = leaf * 1.0
    return leaf, [base[:4], base[1:5]]


def assert_compiled_right(program, inputs, backend="aot_eager"):
    reference = observe(program, *inputs())
    compiled = torch.compile(program, backend=backend, dynamic=False, fullgraph=True)
    assert differences(reference, observe(compiled, *inputs())) == []


def assert_traced_right(program, inputs):
    """Without Dynamo, which passes no input twice and handles grad mode itself."""
    reference = observe(program, *inputs())
    traced = aot_function(lambda *args: program(*args), fw_compiler=nop, bw_compiler=nop)
    assert differences(reference, observe(traced, *inputs())) == []


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_two_written_views_in_training(backend):
    def program(a, b):
        a.mul_(2)
        b.add_(1)
        return [a.sum() + b.sum()]

    assert_compiled_right(program, overlapping, backend)


def test_views_of_intermediates_beside_merged_inputs():
    def program(a, b):
        a.mul_(2)
        product, total = a * b, a + b
        return [product.view(-1), product[1:], total.view(-1), total[1:]]

    assert_compiled_right(program, overlapping)


def test_views_of_intermediates_beside_repeated_inputs():
    def program(a, again, b):
        a.mul_(2)
        values = [again * b, again + b, again - b]
        return [view for value in values for view in (value.view(-1), value[1:])]

    def inputs():
        leaf = torch.arange(1.0, 9.0, dtype=torch.float64).requires_grad_()
        a, b = (leaf * 1.0).clone(), leaf * 2.0
        return leaf, [a, a, b]

    assert_traced_right(program, inputs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_view_of_a_merged_input_is_returned(backend, training):
    def program(a, b):
        a.mul_(2)
        return [b[1:], a + 1]

    assert_compiled_right(program, lambda: overlapping(training), backend)


def test_a_part_of_the_base_is_returned_by_the_size_of_the_base():
    # The recorded steps fit the base as well as the view, so that values are wrong and nothing crashes.
    def program(a, b):
        a.mul_(2)
        return [b.select(0, 0)]

    assert_compiled_right(program, lambda: overlapping(False))


def test_a_repeated_input_is_written_that_needs_no_gradient():
    def program(x, again, weight):
        x.add_(1)
        return [weight * again[0], (weight[:3] * again[1]).exp()]

    def inputs():
        leaf = torch.arange(1.0, 6.0, dtype=torch.float64).div(8).requires_grad_()
        x = torch.ones(2, dtype=torch.float64)
        return leaf, [x, x, leaf]

    assert_traced_right(program, inputs)


@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "merged"])
def test_grad_mode_changes_inside(repeated):
    def program(a, b):
        a.mul_(2)
        torch.set_grad_enabled(False)
        return [b + 1]

    a, b = (leaf := torch.arange(8.0, dtype=torch.float64))[:4], leaf[1:5]
    traced = aot_function(program, fw_compiler=nop, bw_compiler=nop)
    try:
        # The first call traces, which leaves the mode as the program does in any case.
        traced(a, a if repeated else b)
        torch.set_grad_enabled(True)
        traced(a, a if repeated else b)
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_a_parameter_and_a_view_of_it_are_written():
    def program(weight, part):
        with torch.no_grad():
            part.mul_(2)
        return [weight * 3, part * weight[:4]]

    def inputs():
        leaf = torch.arange(1.0, 9.0, dtype=torch.float64).requires_grad_()
        return leaf, [leaf, leaf[1:5]]

    assert_compiled_right(program, inputs)


def test_channels_last_tangents_of_a_merged_input():
    def program(a, b):
        a.mul_(2)
        b.mul_(3)
        return [a + b]

    def inputs():
        leaf = torch.arange(1.0, 49.0, dtype=torch.float64).view(2, 2, 3, 4).requires_grad_()
        base = leaf.contiguous(memory_format=torch.channels_last) * 1.0
        return leaf, [base[:, :, :2], base[:, :, 1:]]

    assert_compiled_right(program, inputs)


def test_dtypes_differ_over_one_storage():
    """Bytes 32 to 48 by two names, whose element offsets lie apart: refused, or wrong (pytorch/pytorch#194747)."""

    def program(a, b):
        a.zero_()
        return [b + 1]

    def inputs():
        single = torch.ones(24)
        return single, [single[8:12], single.view(torch.float64)[4:6]]

    reference = observe(program, *inputs())
    compiled = torch.compile(program, backend="aot_eager", dynamic=False)
    try:
        got = observe(compiled, *inputs())
    except Exception as error:
        if "different dtypes" not in str(error):
            raise
    else:
        assert differences(reference, got) == []


def test_the_loss_of_a_module_with_batch_norm():
    from torch._functorch.aot_autograd import aot_export_module

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 4)
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x):
            return (self.norm(self.linear(x)).square().sum(),)

    _, signature = aot_export_module(Model(), (torch.randn(5, 3),), trace_joint=True, output_loss_index=0)
    assert [signature.backward_signature.loss_output] == signature.user_outputs


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_write_to_a_tensor_without_dimensions(backend):
    """Taken for a Python float of Dynamo's by stock torch, which drops the write."""

    def program(x, count):
        count.add_(1)
        return [x * 2]

    def inputs():
        leaf = torch.arange(4.0, dtype=torch.float64).requires_grad_()
        return leaf, [leaf * 1.0, torch.tensor(10.0, dtype=torch.float64)]

    assert_compiled_right(program, inputs, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("size", [4, 3], ids=["equal sizes", "other sizes"])
def test_a_written_input_is_returned_beside_one_that_is_written_outside_of_the_graph(backend, size):
    """Put in the place of the other's new value by stock torch: silently, where sizes are equal."""

    def program(buffer, x):
        x.mul_(2)
        return [buffer.add_(1), x.sum()]

    def inputs():
        leaf = torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_()
        return leaf, [torch.full((size,), 10.0, dtype=torch.float64), leaf * 1.0]

    assert_compiled_right(program, inputs, backend)


@pytest.mark.parametrize("training", [True, False])
def test_equal_views_of_one_intermediate_are_two_tensors(training):
    """One Python object for both in stock Inductor, which knows of no relation of theirs."""

    def program(x):
        whole = x.detach() + 1
        return [whole.view(-1), x * 2, whole.view(-1), whole[1:]]

    def inputs():
        leaf = torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_(training)
        return leaf, [leaf * 1.0]

    assert_compiled_right(program, inputs, "inductor")
    first, _, second, part = torch.compile(program, backend="inductor")(inputs()[1][0])
    assert first is not second
    first.zero_()
    assert second.eq(0).all() and part.eq(0).all()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_views_made_under_no_grad_pass_no_gradient(backend):
    def program(x, y):
        with torch.no_grad():
            of_input = x[1:]
        whole = y * 3
        with torch.no_grad():
            of_intermediate = whole.view(2, 2)
        return [of_input, of_intermediate, whole]

    def inputs():
        leaf = torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_()
        return leaf, [leaf * 1.0, leaf * 2.0]

    assert_compiled_right(program, inputs, backend)


def test_a_lone_view_made_under_no_grad_requires_a_gradient():
    def program(x):
        whole = x.sin()
        with torch.no_grad():
            view = whole[:]
        return [view]

    def inputs():
        leaf = torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_()
        return leaf, [leaf * 1.0]

    assert torch.compile(program, backend="aot_eager")(*inputs()[1])[0].requires_grad


def _cloned(x, position, value):
    x[0] = 2.5
    kept = x.clone()
    x[1:] = -1.0
    return [kept]


def _views_of_a_put(x, position, value):
    kept = torch.index_put(x, (position,), value)
    x[1:] = -1.0
    return [kept[1:], kept.view(2, 2)]


def _cloned_last(x, position, value):
    x[position] = value
    return [x.clone()]


@pytest.mark.parametrize("program", [_cloned, _views_of_a_put, _cloned_last])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_copy_of_a_written_input_is_returned(program, mode):
    """Made in the input's own memory by stock Inductor, which has then been written again."""

    def inputs():
        return [torch.arange(4.0), torch.tensor([1]), torch.tensor([5.0])]

    with mode():
        expected_input, *rest = inputs()
        expected = program(expected_input, *rest)
        x, *rest = inputs()
        got = torch.compile(program, backend="inductor")(x, *rest)
    torch.testing.assert_close([x, *got], [expected_input, *expected], rtol=0, atol=0)
    assert x.untyped_storage().data_ptr() not in {y.untyped_storage().data_ptr() for y in got}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_copy_of_merged_inputs_is_returned(backend):
    """Left out by Inductor's passes over the joint graph: the caller gets a view of what was written since."""

    def program(a, b):
        before = a.detach()
        kept = before.clone()
        before.add_(0.5)
        return [kept, b.sin()]

    def inputs():
        leaf = torch.arange(1.0, 25.0, dtype=torch.float64).requires_grad_()
        base = leaf * 1.0
        return leaf, [base[5:9], base[5:10:2].unsqueeze(0)]

    (_, expected_inputs), (_, arguments) = inputs(), inputs()
    expected = program(*expected_inputs)
    got = torch.compile(program, backend=backend)(*arguments)
    torch.testing.assert_close([*arguments, *got], [*expected_inputs, *expected], rtol=0, atol=0)
    assert got[0].untyped_storage().data_ptr() != arguments[0].untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "offsets",
    [[(10, 10), (6, 6)], [(0, 8), (1, 2)], [(1, 2), (0, 8)], [(0, 2), (0, 1)]],
    ids=["moved", "apart, then overlapping", "overlapping, then apart", "otherwise overlapping"],
)
def test_inputs_share_memory_otherwise_in_the_second_call(backend, offsets):
    """Taken to lie where they lay in the first one by stock torch: silently."""

    def program(a, b):
        a.mul_(2)
        b.add_(1)
        return [a + b]

    compiled = torch.compile(program, backend=backend)
    for first, second in [*offsets, offsets[0]]:
        expected, base = (torch.arange(16.0, dtype=torch.float64) for _ in range(2))
        (total,) = program(expected[first : first + 4], expected[second : second + 4])
        (got,) = compiled(base[first : first + 4], base[second : second + 4])
        torch.testing.assert_close([base, got], [expected, total], rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_parts_of_a_split_share_memory_with_what_was_split(backend):
    """Loudly wrong in stock torch, for its inputs; and with these right, Inductor would copy the part."""

    def program(a, b):
        with torch.no_grad():
            a.t_()
            a.fill_(2.0)
        whole = b.mul(2.0)
        part = whole.split(2)[0]
        return [whole.unsqueeze(0), a, part]

    leaf = torch.arange(24.0).requires_grad_()
    whole, _, part = torch.compile(program, backend=backend)(leaf, leaf.narrow(0, 10, 6).view(2, 3))
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_copy_of_a_written_input_is_needed_by_the_backward(backend):
    """Left out by tracing: stock torch then finds the input written, and says that the model is to blame."""

    def program(x):
        before = x.t().clone()
        x.sin_()
        return [before.sin()]

    def inputs():
        leaf = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
        return leaf, [leaf * 1.0]

    assert_compiled_right(program, inputs, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_copy_of_merged_inputs_is_needed_by_the_backward(backend):
    """The same; of the base of several inputs nobody notices that it was written."""

    def program(a, b):
        before = b.t().clone()
        a.sin_()
        return [before.sin().sin()]

    def inputs():
        leaf = torch.arange(1.0, 25.0, dtype=torch.float64).requires_grad_()
        base = leaf * 1.0
        return leaf, [base[18:].view(2, 3), base[18:].view(2, 3)]

    assert_compiled_right(program, inputs, backend)


@pytest.mark.parametrize("view", [lambda y: y[0], lambda y: y[:, 0]], ids=["row", "column"])
def test_views_of_an_intermediate_keep_their_strides(view):
    """Those of stock Inductor's own layout."""

    def program(x):
        return [view(x.t().sin())]

    x = torch.arange(6.0).reshape(2, 3)
    (expected,), (got,) = program(x), torch.compile(program, backend="inductor")(x)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_detached_alias_is_given_a_history(backend):
    def program(x, y):
        alias = x.detach()
        alias.copy_(y)
        return [alias]

    def inputs():
        leaf = torch.arange(4.0, dtype=torch.float64).requires_grad_()
        return leaf, [torch.zeros(4, dtype=torch.float64), leaf * 2.0]

    assert_compiled_right(program, inputs, backend)
